// The environment of Container Apps, in which both apps run.

@description('Region.')
param location string

@description('Beginning of the names of all resources.')
param name string

@description('Whether replicas are spread over availability zones.')
param zoneRedundant bool

@description('Id of the subnet of the replicas.')
param appsSubnetId string

@description('Id of the workspace for logs.')
param workspaceId string

resource managed 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: '${name}-environment'
  location: location
  properties: {
    zoneRedundant: zoneRedundant
    vnetConfiguration: {
      infrastructureSubnetId: appsSubnetId
      internal: false
    }
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
    // By the diagnostic setting below, which needs no key of the workspace.
    appLogsConfiguration: {
      destination: 'azure-monitor'
    }
  }
}

resource managedLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: managed
  name: 'logs'
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'ContainerAppConsoleLogs'
        enabled: true
      }
      {
        category: 'ContainerAppSystemLogs'
        enabled: true
      }
    ]
  }
}

@description('Id of the environment.')
output environmentId string = managed.id

@description('Domain of the environment.')
output domain string = managed.properties.defaultDomain
