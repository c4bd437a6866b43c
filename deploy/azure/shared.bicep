// Rights at what exists before: each identity reads its own secrets in the vault, and the images in the registry.

@description('Name of the key vault.')
param vaultName string

@description('Name of the container registry.')
param registryName string

@description('Principal of the identity of web processes.')
param webPrincipalId string

@description('Principal of the identity of workers.')
param workerPrincipalId string

@description('Whether the vault has the secret anchor-key.')
param withAnchorKey bool

// Key Vault Secrets User, AcrPull.
var readsSecrets = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '4633458b-17de-408a-b874-0445c86b69e6')
var pullsImages = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '7f951dda-4ed3-4680-a7ca-43fe172d538d')

var both = [
  webPrincipalId
  workerPrincipalId
]

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' existing = {
  name: vaultName
}

resource ringSecret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' existing = {
  parent: vault
  name: 'ring-secret'
}

resource bootstrapKey 'Microsoft.KeyVault/vaults/secrets@2023-07-01' existing = {
  parent: vault
  name: 'bootstrap-key'
}

resource anchorKey 'Microsoft.KeyVault/vaults/secrets@2023-07-01' existing = {
  parent: vault
  name: 'anchor-key'
}

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' existing = {
  name: registryName
}

resource ringSecretAssignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in both: {
  scope: ringSecret
  name: guid(ringSecret.id, principal, readsSecrets)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: readsSecrets
  }
}]

resource bootstrapKeyAssignment 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: bootstrapKey
  name: guid(bootstrapKey.id, webPrincipalId, readsSecrets)
  properties: {
    principalId: webPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: readsSecrets
  }
}

resource anchorKeyAssignment 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (withAnchorKey) {
  scope: anchorKey
  name: guid(anchorKey.id, workerPrincipalId, readsSecrets)
  properties: {
    principalId: workerPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: readsSecrets
  }
}

resource registryAssignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in both: {
  scope: registry
  name: guid(registry.id, principal, pullsImages)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: pullsImages
  }
}]

@description('Address of the vault.')
output vaultUri string = vault.properties.vaultUri

@description('Address of the registry.')
output registryServer string = registry.properties.loginServer
