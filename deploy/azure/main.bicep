// The service on Azure Container Apps: storage account, network, identities, web and workers, alerts. README.md tells how
// to deploy it, and what the vault and the registry must have before.
targetScope = 'resourceGroup'

@description('Region of all resources. With zoneRedundant it must have availability zones.')
param location string = resourceGroup().location

@description('Beginning of the names of all resources: lower-case letters and digits.')
@minLength(3)
@maxLength(11)
param name string = 'postonce'

@description('Replication of the storage account. The default survives the loss of a zone; Standard_LRS loses everything with its data center.')
@allowed([
  'Standard_LRS'
  'Standard_ZRS'
  'Standard_GZRS'
  'Standard_RAGZRS'
])
param storageSku string = 'Standard_ZRS'

@description('Whether the replicas of both apps are spread over availability zones. It cannot be changed later.')
param zoneRedundant bool = true

@description('Addresses of the virtual network.')
param networkPrefix string = '10.60.0.0/22'

@description('Addresses of the subnet of the replicas, within networkPrefix: at least a /27, one address for each replica and as many for upgrades.')
param appsPrefix string = '10.60.0.0/23'

@description('Addresses of the subnet of the private endpoints, within networkPrefix.')
param endpointsPrefix string = '10.60.2.0/27'

@description('Addresses of the subnet for machines of operators, within networkPrefix.')
param operatorsPrefix string = '10.60.3.0/27'

@description('Public addresses or networks of operators that may use the storage account from outside of the network, with an identity. Without any, it has no public address.')
param operatorAddresses array = []

@description('Days for which deleted payloads and containers can be restored.')
@minValue(1)
@maxValue(365)
param softDeleteDays int = 7

@description('Days for which a copy of an anchor can be neither changed nor removed.')
@minValue(1)
@maxValue(146000)
param anchorRetentionDays int = 3650

@description('true after the policy of the anchors was locked. Azure refuses to write a locked policy, so the template then leaves it as it is.')
param anchorsLocked bool = false

@description('Requests to the storage account that are logged, of StorageRead, StorageWrite and StorageDelete. Each posting causes several, and each line costs as much as some requests, so without need of an access log: [].')
param storageLogs array = [
  'StorageWrite'
  'StorageDelete'
]

@description('Days for which logs are kept.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 90

@description('Resource group that has the vault and the registry.')
param sharedResourceGroup string = resourceGroup().name

@description('Key vault with the secrets ring-secret and bootstrap-key, and anchor-key if withAnchorKey. It must use the permission model of roles.')
param vaultName string

@description('Container registry with both images.')
param registryName string

@description('Image of web processes in the registry, with a version.')
param webImage string

@description('Image of workers in the registry, with a version. In an upgrade it is changed first.')
param workerImage string

@description('Whether the vault has the secret anchor-key, with which workers make anchors.')
param withAnchorKey bool = false

@description('Address that clients use, such as https://bank.example: they sign it. By default the address that Azure gives to the app.')
param publicAddress string = ''

@description('Networks of the proxies of Container Apps, by default those that the platform reserves: the client that they name counts for limits and in the audit trail.')
param trustedProxies string = '100.100.0.0/17,100.100.128.0/19,100.100.160.0/19,100.100.192.0/19'

@description('Smallest number of web processes. With two, one can end.')
@minValue(2)
@maxValue(1000)
param webReplicasMin int = 2

@description('Largest number of web processes.')
@minValue(2)
@maxValue(1000)
param webReplicasMax int = 10

@description('Number of requests in progress for each web process, above which a further one is started.')
@minValue(1)
param webRequests int = 100

@description('Smallest number of workers. With two, work goes on when one ends.')
@minValue(1)
@maxValue(1000)
param workersMin int = 2

@description('Largest number of workers.')
@minValue(1)
@maxValue(1000)
param workersMax int = 8

@description('Number of messages of one work queue for each worker, above which a further one is started: worker-rate (200) times posting-age-target-s (10), divided by queueCount.')
@minValue(1)
param queueLength int = 500

@description('Number of work queues. It may be raised later: workers first.')
@minValue(1)
@maxValue(64)
param queueCount int = 4

@description('Longest interval in milliseconds between two polls of a worker for work whose notification was lost. README.md tells why it is shorter than the default of the program.')
@minValue(100)
@maxValue(600000)
param idlePollMaxMs int = 5000

@description('Seconds for which a web process that is stopped accepts requests, until no more are sent to it.')
@minValue(0)
@maxValue(300)
param drainDelayS int = 15

@description('Ids of the action groups that receive the alerts.')
param actionGroups array = []

@description('Number of messages in all queues together, on the average of an hour, that is an alert.')
@minValue(1)
param messagesMax int = 10000

resource logs 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs'
  location: location
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: logRetentionDays
    features: {
      // Who reads logs needs rights at this workspace, and its keys open nothing.
      enableLogAccessUsingOnlyResourcePermissions: false
      disableLocalAuth: true
    }
  }
}

module network 'network.bicep' = {
  name: '${name}-network'
  params: {
    location: location
    name: name
    networkPrefix: networkPrefix
    appsPrefix: appsPrefix
    endpointsPrefix: endpointsPrefix
    operatorsPrefix: operatorsPrefix
  }
}

module storage 'storage.bicep' = {
  name: '${name}-storage'
  params: {
    location: location
    name: name
    storageSku: storageSku
    networkId: network.outputs.networkId
    endpointsSubnetId: network.outputs.endpointsSubnetId
    operatorAddresses: operatorAddresses
    softDeleteDays: softDeleteDays
    anchorRetentionDays: anchorRetentionDays
    anchorsLocked: anchorsLocked
    storageLogs: storageLogs
    workspaceId: logs.id
  }
}

module identities 'identities.bicep' = {
  name: '${name}-identities'
  params: {
    location: location
    name: name
    accountName: storage.outputs.accountName
  }
}

module shared 'shared.bicep' = {
  name: '${name}-shared'
  scope: resourceGroup(sharedResourceGroup)
  params: {
    vaultName: vaultName
    registryName: registryName
    webPrincipalId: identities.outputs.webPrincipalId
    workerPrincipalId: identities.outputs.workerPrincipalId
    withAnchorKey: withAnchorKey
  }
}

module managed 'environment.bicep' = {
  name: '${name}-environment'
  params: {
    location: location
    name: name
    zoneRedundant: zoneRedundant
    appsSubnetId: network.outputs.appsSubnetId
    workspaceId: logs.id
  }
}

module apps 'apps.bicep' = {
  name: '${name}-apps'
  params: {
    location: location
    name: name
    environmentId: managed.outputs.environmentId
    domain: managed.outputs.domain
    accountName: storage.outputs.accountName
    webIdentityId: identities.outputs.webIdentityId
    webClientId: identities.outputs.webClientId
    workerIdentityId: identities.outputs.workerIdentityId
    workerClientId: identities.outputs.workerClientId
    vaultUri: shared.outputs.vaultUri
    registryServer: shared.outputs.registryServer
    webImage: webImage
    workerImage: workerImage
    withAnchorKey: withAnchorKey
    publicAddress: publicAddress
    trustedProxies: trustedProxies
    webReplicasMin: webReplicasMin
    webReplicasMax: webReplicasMax
    webRequests: webRequests
    workersMin: workersMin
    workersMax: workersMax
    queueLength: queueLength
    queueCount: queueCount
    idlePollMaxMs: idlePollMaxMs
    drainDelayS: drainDelayS
  }
}

module monitoring 'monitoring.bicep' = {
  name: '${name}-monitoring'
  params: {
    location: location
    name: name
    workspaceId: logs.id
    accountId: storage.outputs.accountId
    webAppId: apps.outputs.webAppId
    webAppName: apps.outputs.webAppName
    workerAppId: apps.outputs.workerAppId
    workerAppName: apps.outputs.workerAppName
    webReplicasMin: webReplicasMin
    workersMin: workersMin
    messagesMax: messagesMax
    actionGroups: actionGroups
  }
}

@description('Address of the API.')
output apiAddress string = apps.outputs.apiAddress

@description('Name of the storage account.')
output storageAccount string = storage.outputs.accountName

@description('Name of the app with the web processes, in which operators run commands.')
output webApp string = apps.outputs.webAppName

@description('Name of the app with the workers.')
output workerApp string = apps.outputs.workerAppName

@description('Id of the workspace with all logs.')
output workspace string = logs.id
