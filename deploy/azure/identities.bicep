// One identity for each kind of process, with the roles that it needs at the storage account, and no others. The table in
// worker/README.md, "Identity on Azure", is the same; a test compares them.

@description('Region.')
param location string

@description('Beginning of the names of all resources.')
param name string

@description('Name of the storage account.')
param accountName string

var roles = {
  'Storage Blob Data Contributor': 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
  'Storage Queue Data Contributor': '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  'Storage Queue Data Message Sender': 'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a'
  'Storage Queue Data Reader': '19e7f393-937e-4f77-808e-94535e297925'
  'Storage Table Data Contributor': '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
}

var webRoles = [
  'Storage Table Data Contributor'
  'Storage Blob Data Contributor'
  'Storage Queue Data Message Sender'
  'Storage Queue Data Reader'
]

var workerRoles = [
  'Storage Table Data Contributor'
  'Storage Blob Data Contributor'
  'Storage Queue Data Contributor'
]

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: accountName
}

resource web 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-web'
  location: location
}

resource worker 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-worker'
  location: location
}

resource webAssignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in webRoles: {
  scope: account
  name: guid(account.id, web.id, roles[role])
  properties: {
    principalId: web.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles[role])
  }
}]

resource workerAssignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in workerRoles: {
  scope: account
  name: guid(account.id, worker.id, roles[role])
  properties: {
    principalId: worker.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles[role])
  }
}]

@description('Id of the identity of web processes.')
output webIdentityId string = web.id

@description('Client id of the identity of web processes.')
output webClientId string = web.properties.clientId

@description('Principal of the identity of web processes.')
output webPrincipalId string = web.properties.principalId

@description('Id of the identity of workers.')
output workerIdentityId string = worker.id

@description('Client id of the identity of workers.')
output workerClientId string = worker.properties.clientId

@description('Principal of the identity of workers.')
output workerPrincipalId string = worker.properties.principalId
