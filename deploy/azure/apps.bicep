// Web processes with a public address, and workers without one.

@description('Region.')
param location string

@description('Beginning of the names of all resources.')
param name string

@description('Id of the environment.')
param environmentId string

@description('Domain of the environment.')
param domain string

@description('Name of the storage account.')
param accountName string

@description('Id of the identity of web processes.')
param webIdentityId string

@description('Client id of the identity of web processes.')
param webClientId string

@description('Id of the identity of workers.')
param workerIdentityId string

@description('Client id of the identity of workers.')
param workerClientId string

@description('Address of the vault, with a / at its end.')
param vaultUri string

@description('Address of the registry.')
param registryServer string

@description('Image of web processes in the registry.')
param webImage string

@description('Image of workers in the registry.')
param workerImage string

@description('Whether the vault has the secret anchor-key.')
param withAnchorKey bool

@description('Address that clients use; empty: that of the app.')
param publicAddress string

@description('Networks of the proxies of Container Apps.')
param trustedProxies string

@description('Smallest number of web processes.')
param webReplicasMin int

@description('Largest number of web processes.')
param webReplicasMax int

@description('Number of requests in progress for each web process.')
param webRequests int

@description('Smallest number of workers.')
param workersMin int

@description('Largest number of workers.')
param workersMax int

@description('Number of messages of one work queue for each worker.')
param queueLength int

@description('Number of work queues.')
param queueCount int

@description('Longest interval in milliseconds between two polls of a worker.')
param idlePollMaxMs int

@description('Seconds for which a web process that is stopped accepts requests.')
param drainDelayS int

var webName = '${name}-web'
var workerName = '${name}-worker'

// Settings of all processes.
var settings = [
  {
    name: 'POSTONCE_STORAGE'
    value: 'azure:AccountName=${accountName};EndpointSuffix=${environment().suffixes.storage}'
  }
  {
    name: 'POSTONCE_AZURE_IDENTITY'
    value: 'managed'
  }
  {
    name: 'POSTONCE_RING_SECRET'
    secretRef: 'ring-secret'
  }
  {
    name: 'POSTONCE_QUEUE_COUNT'
    value: string(queueCount)
  }
  {
    name: 'POSTONCE_WORKERS_MIN'
    value: string(workersMin)
  }
  {
    name: 'POSTONCE_WORKERS_MAX'
    value: string(workersMax)
  }
  {
    name: 'POSTONCE_LOG_FORMAT'
    value: 'json'
  }
  // Without POSTONCE_ADVERTISE: a replica finds its own address, because Container Apps gives it no name.
  {
    name: 'POSTONCE_WORKER_BIND'
    value: '0.0.0.0:8082'
  }
]

// One rule for each queue; the one that wants the most workers decides. Not the number that the bank computes itself
// (/v1/admin/scale): README.md tells why.
var workRules = [for partition in range(0, queueCount): {
  name: 'work-${partition}'
  azureQueue: {
    accountName: accountName
    queueName: 'postonce-work-${partition}'
    queueLength: queueLength
    identity: workerIdentityId
  }
}]

// A message of these queues is a chunk of many instructions.
var batchRules = [for partition in range(0, queueCount): {
  name: 'batchpost-${partition}'
  azureQueue: {
    accountName: accountName
    queueName: 'postonce-batchpost-${partition}'
    queueLength: 10
    identity: workerIdentityId
  }
}]

resource worker 'Microsoft.App/containerApps@2025-01-01' = {
  name: workerName
  location: location
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${workerIdentityId}': {}
    }
  }
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      // A new revision replaces the old one when it is ready. Without ingress: nothing outside calls a worker.
      activeRevisionsMode: 'Single'
      registries: [
        {
          server: registryServer
          identity: workerIdentityId
        }
      ]
      secrets: concat([
        {
          name: 'ring-secret'
          keyVaultUrl: '${vaultUri}secrets/ring-secret'
          identity: workerIdentityId
        }
      ], withAnchorKey ? [
        {
          name: 'anchor-key'
          keyVaultUrl: '${vaultUri}secrets/anchor-key'
          identity: workerIdentityId
        }
      ] : [])
    }
    template: {
      // Ten seconds in which work in progress ends, and a margin. What is not finished is received by another worker.
      terminationGracePeriodSeconds: 30
      containers: [
        {
          name: 'worker'
          image: '${registryServer}/${workerImage}'
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          env: concat(settings, [
            {
              name: 'POSTONCE_AZURE_CLIENT_ID'
              value: workerClientId
            }
            // Container Apps does not promise that replicas reach each other, so a notification may be lost.
            {
              name: 'POSTONCE_IDLE_POLL_MAX_MS'
              value: string(idlePollMaxMs)
            }
          ], withAnchorKey ? [
            {
              name: 'POSTONCE_ANCHOR_KEY'
              secretRef: 'anchor-key'
            }
          ] : [])
          probes: [
            {
              type: 'Startup'
              httpGet: {
                path: '/livez'
                port: 8082
              }
              periodSeconds: 5
              failureThreshold: 10
            }
            {
              type: 'Liveness'
              httpGet: {
                path: '/livez'
                port: 8082
              }
              periodSeconds: 10
              timeoutSeconds: 5
              failureThreshold: 3
            }
            {
              type: 'Readiness'
              httpGet: {
                path: '/readyz'
                port: 8082
              }
              periodSeconds: 5
              timeoutSeconds: 3
              failureThreshold: 2
            }
          ]
        }
      ]
      scale: {
        minReplicas: workersMin
        maxReplicas: workersMax
        rules: concat(workRules, batchRules)
      }
    }
  }
}

resource web 'Microsoft.App/containerApps@2025-01-01' = {
  name: webName
  location: location
  // Workers first: they create the queues, and read the messages of a newer version.
  dependsOn: [
    worker
  ]
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${webIdentityId}': {}
    }
  }
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      // Only the API. The addresses for operators (8081) and for other processes (8082) are not exposed.
      ingress: {
        external: true
        targetPort: 8080
        transport: 'auto'
        allowInsecure: false
        traffic: [
          {
            latestRevision: true
            weight: 100
          }
        ]
      }
      registries: [
        {
          server: registryServer
          identity: webIdentityId
        }
      ]
      secrets: [
        {
          name: 'ring-secret'
          keyVaultUrl: '${vaultUri}secrets/ring-secret'
          identity: webIdentityId
        }
        {
          name: 'bootstrap-key'
          keyVaultUrl: '${vaultUri}secrets/bootstrap-key'
          identity: webIdentityId
        }
      ]
    }
    template: {
      // POSTONCE_DRAIN_DELAY_S, ten seconds in which requests end, and time for unsent work.
      terminationGracePeriodSeconds: drainDelayS + 45
      containers: [
        {
          name: 'web'
          image: '${registryServer}/${webImage}'
          // 4096 connections of up to 256 KiB (connections-max), and large answers.
          resources: {
            cpu: json('1.0')
            memory: '2Gi'
          }
          env: concat(settings, [
            {
              name: 'POSTONCE_AZURE_CLIENT_ID'
              value: webClientId
            }
            {
              name: 'POSTONCE_BOOTSTRAP_KEY'
              secretRef: 'bootstrap-key'
            }
            {
              name: 'POSTONCE_BIND'
              value: '0.0.0.0:8080'
            }
            {
              name: 'POSTONCE_ADMIN_BIND'
              value: '0.0.0.0:8081'
            }
            {
              name: 'POSTONCE_PUBLIC_ADDRESS'
              value: empty(publicAddress) ? 'https://${webName}.${domain}' : publicAddress
            }
            {
              name: 'POSTONCE_TRUSTED_PROXIES'
              value: trustedProxies
            }
            {
              name: 'POSTONCE_DRAIN_DELAY_S'
              value: string(drainDelayS)
            }
          ])
          // All probes use the port for operators: requests of partners cannot take its connections.
          probes: [
            {
              type: 'Startup'
              httpGet: {
                path: '/livez'
                port: 8081
              }
              periodSeconds: 5
              failureThreshold: 10
            }
            {
              type: 'Liveness'
              httpGet: {
                path: '/livez'
                port: 8081
              }
              periodSeconds: 10
              timeoutSeconds: 5
              failureThreshold: 3
            }
            {
              type: 'Readiness'
              httpGet: {
                path: '/readyz'
                port: 8081
              }
              periodSeconds: 5
              timeoutSeconds: 3
              failureThreshold: 2
            }
          ]
        }
      ]
      scale: {
        minReplicas: webReplicasMin
        maxReplicas: webReplicasMax
        rules: [
          {
            name: 'requests'
            http: {
              metadata: {
                concurrentRequests: string(webRequests)
              }
            }
          }
        ]
      }
    }
  }
}

@description('Address of the API.')
output apiAddress string = empty(publicAddress) ? 'https://${web.properties.configuration.ingress.fqdn}' : publicAddress

@description('Id of the app with the web processes.')
output webAppId string = web.id

@description('Name of the app with the web processes.')
output webAppName string = web.name

@description('Id of the app with the workers.')
output workerAppId string = worker.id

@description('Name of the app with the workers.')
output workerAppName string = worker.name
