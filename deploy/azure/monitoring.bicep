// Alerts on what Azure sees: metrics of the platform, and lines of the logs. README.md compares them with those of
// deploy/prometheus/rules.yaml. Severity 1 wakes somebody, 3 waits for the next working day.

@description('Region.')
param location string

@description('Beginning of the names of all resources.')
param name string

@description('Id of the workspace with the logs.')
param workspaceId string

@description('Id of the storage account.')
param accountId string

@description('Id of the app with the web processes.')
param webAppId string

@description('Name of the app with the web processes.')
param webAppName string

@description('Id of the app with the workers.')
param workerAppId string

@description('Name of the app with the workers.')
param workerAppName string

@description('Smallest number of web processes.')
param webReplicasMin int

@description('Smallest number of workers.')
param workersMin int

@description('Number of messages in all queues together that is an alert.')
param messagesMax int

@description('Ids of the action groups that receive the alerts.')
param actionGroups array

var metrics = [
  {
    name: 'web-processes-missing'
    text: 'There are fewer web processes than the smallest number'
    severity: 1
    resource: webAppId
    window: 'PT5M'
    metric: 'Replicas'
    aggregation: 'Maximum'
    operator: 'LessThan'
    threshold: webReplicasMin
    dimensions: []
  }
  {
    name: 'workers-missing'
    text: 'There are fewer workers than the smallest number. Requests are accepted and wait'
    severity: 1
    resource: workerAppId
    window: 'PT5M'
    metric: 'Replicas'
    aggregation: 'Maximum'
    operator: 'LessThan'
    threshold: workersMin
    dimensions: []
  }
  {
    name: 'web-restarts'
    text: 'A web process ended and was started again'
    severity: 3
    resource: webAppId
    window: 'PT15M'
    metric: 'RestartCount'
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: []
  }
  {
    name: 'worker-restarts'
    text: 'A worker ended and was started again'
    severity: 3
    resource: workerAppId
    window: 'PT15M'
    metric: 'RestartCount'
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: []
  }
  {
    name: 'requests-fail'
    text: 'Requests are answered with a 5xx status, by the service or by the proxy in front of it'
    severity: 1
    resource: webAppId
    window: 'PT5M'
    metric: 'Requests'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 10
    dimensions: [
      {
        name: 'statusCodeCategory'
        operator: 'Include'
        values: [
          '5xx'
        ]
      }
    ]
  }
  {
    name: 'storage-fails'
    text: 'The storage account fails'
    severity: 1
    resource: accountId
    window: 'PT5M'
    metric: 'Availability'
    aggregation: 'Average'
    operator: 'LessThan'
    threshold: 99
    dimensions: []
  }
  {
    name: 'storage-throttles'
    text: 'The storage account refuses requests because there are too many'
    severity: 1
    resource: accountId
    window: 'PT5M'
    metric: 'Transactions'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 100
    dimensions: [
      {
        name: 'ResponseType'
        operator: 'Include'
        values: [
          'ServerBusyError'
          'ClientThrottlingError'
        ]
      }
    ]
  }
  {
    name: 'storage-refuses'
    text: 'Requests to the storage account lack a right: an identity without its role, or a stranger'
    severity: 3
    resource: accountId
    window: 'PT15M'
    metric: 'Transactions'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: [
      {
        name: 'ResponseType'
        operator: 'Include'
        values: [
          'AuthorizationError'
        ]
      }
    ]
  }
  {
    // Azure measures it once an hour, and not the age: late, but independent of the logs.
    name: 'queues-long'
    text: 'Many messages wait'
    severity: 1
    resource: '${accountId}/queueServices/default'
    window: 'PT1H'
    metric: 'QueueMessageCount'
    aggregation: 'Average'
    operator: 'GreaterThan'
    threshold: messagesMax
    dimensions: []
  }
]

// Each line of the processes is a JSON object.
var lines = 'ContainerAppConsoleLogs | where ContainerAppName in ("${webAppName}", "${workerAppName}") | extend line = parse_json(Log)'

// Transactions that a client was told to be accepted, 5 to 20 minutes ago, and that no line has decided since.
var named = '${lines} | extend message = tostring(line.message_id) | where isnotempty(message)'
var accepted = 'named | where tostring(line.transaction) == "accepted" and TimeGenerated between (ago(20m) .. ago(5m))'
var final = 'tostring(line.transaction) in ("posted", "rejected") or tostring(line.target) == "postonce::decided"'
var decided = 'named | where ${final} | distinct message'
var open = 'let named = ${named}; ${accepted} | distinct message | join kind=leftanti (${decided}) on message'

var logs = [
  {
    name: 'errors'
    text: 'A process has logged an error: an outage of a minute, a dead letter, a lost payload, a finding of the scrubber'
    severity: 1
    window: 'PT5M'
    query: '${lines} | where tostring(line.level) == "ERROR"'
  }
  {
    name: 'not-posted'
    text: 'Transactions are not posted 5 minutes after they were accepted'
    severity: 1
    window: 'PT30M'
    query: open
  }
  {
    name: 'autoscaler-fails'
    text: 'The number of workers does not follow the queues'
    severity: 3
    window: 'PT30M'
    query: 'ContainerAppSystemLogs | where ContainerAppName == "${workerAppName}" and Reason in ("KEDAScalerFailed", "KEDAMetricSourceFailed", "ScaledObjectCheckFailed")'
  }
]

resource metricAlerts 'Microsoft.Insights/metricAlerts@2018-03-01' = [for alert in metrics: {
  name: '${name}-${alert.name}'
  location: 'global'
  properties: {
    description: alert.text
    severity: alert.severity
    enabled: true
    scopes: [
      alert.resource
    ]
    evaluationFrequency: alert.window == 'PT1H' ? 'PT5M' : 'PT1M'
    windowSize: alert.window
    autoMitigate: true
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: alert.name
          metricName: alert.metric
          timeAggregation: alert.aggregation
          operator: alert.operator
          threshold: alert.threshold
          dimensions: alert.dimensions
          // A new app has no values yet.
          skipMetricValidation: true
        }
      ]
    }
    actions: [for group in actionGroups: {
      actionGroupId: group
    }]
  }
}]

resource logAlerts 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = [for alert in logs: {
  name: '${name}-${alert.name}'
  location: location
  kind: 'LogAlert'
  properties: {
    description: alert.text
    severity: alert.severity
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: alert.window
    autoMitigate: true
    // The tables exist when the first lines arrived.
    skipQueryValidation: true
    criteria: {
      allOf: [
        {
          query: alert.query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: actionGroups
    }
  }
}]
