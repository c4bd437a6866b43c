// The storage account: the ledger, the queues and the payloads, and a container for copies of anchors that nobody can
// change. It accepts identities only, from the network only.
//
// There is NO rule that removes or moves blobs (managementPolicies), and there must be none: the service removes payloads
// itself, when their work is final. A rule would remove some whose work still waits, and their messages could not be
// posted until an operator runs `postonce-web recover`; a batch would lose its results.

@description('Region.')
param location string

@description('Beginning of the names of all resources.')
param name string

@description('Replication of the account.')
param storageSku string

@description('Id of the network.')
param networkId string

@description('Id of the subnet of the private endpoints.')
param endpointsSubnetId string

@description('Public addresses of operators that may use the account.')
param operatorAddresses array

@description('Days for which deleted payloads and containers can be restored.')
param softDeleteDays int

@description('Days for which a copy of an anchor can be neither changed nor removed.')
param anchorRetentionDays int

@description('Whether the policy of the anchors is locked, and therefore left as it is.')
param anchorsLocked bool

@description('Requests that are logged.')
param storageLogs array

@description('Id of the workspace for logs.')
param workspaceId string

var services = [
  'blob'
  'queue'
  'table'
]

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' = {
  // checkov:skip=CKV_AZURE_43: the name is 3 to 11 letters and a hash of 13, which checkov cannot compute
  // checkov:skip=CKV_AZURE_206: the default has copies in three zones; one in a second region lags behind (storageSku)
  // checkov:skip=CKV_AZURE_36: no service of Azure uses the account; its logs and metrics need no exception
  name: toLower('${name}${uniqueString(resourceGroup().id)}')
  location: location
  kind: 'StorageV2'
  sku: {
    name: storageSku
  }
  properties: {
    // No key and no signature made with one: only identities with a role.
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    isLocalUserEnabled: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    accessTier: 'Hot'
    encryption: {
      keySource: 'Microsoft.Storage'
      // So that a key of your own can be used later, also for tables and queues. It cannot be changed later.
      services: {
        blob: {
          enabled: true
          keyType: 'Account'
        }
        queue: {
          enabled: true
          keyType: 'Account'
        }
        table: {
          enabled: true
          keyType: 'Account'
        }
      }
    }
    publicNetworkAccess: empty(operatorAddresses) ? 'Disabled' : 'Enabled'
    networkAcls: {
      defaultAction: 'Deny'
      bypass: 'None'
      ipRules: [for address in operatorAddresses: {
        action: 'Allow'
        value: address
      }]
    }
  }
}

// Tables have no soft delete: with the account, the ledger would be lost. Remove the lock by hand before the account.
resource lock 'Microsoft.Authorization/locks@2020-05-01' = {
  scope: account
  name: 'ledger'
  properties: {
    level: 'CanNotDelete'
    notes: 'This account has the ledger of the bank.'
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2024-01-01' = {
  parent: account
  name: 'default'
  properties: {
    // A payload that was removed by mistake can be restored. The service removes payloads daily, so each exists for some
    // days longer, which costs little: most work needs none.
    deleteRetentionPolicy: {
      enabled: true
      days: softDeleteDays
    }
    containerDeleteRetentionPolicy: {
      enabled: true
      days: softDeleteDays
    }
    // A blob of the bank always has the same content, and anchors have a policy, so versions would only be copies.
    isVersioningEnabled: false
  }
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource tables 'Microsoft.Storage/storageAccounts/tableServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource anchors 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobs
  name: 'anchors'
  properties: {
    publicAccess: 'None'
  }
}

// Not locked: an administrator of the account can still shorten or remove it, but no process of the bank can. README.md
// tells how to lock it, which cannot be undone.
resource anchorRetention 'Microsoft.Storage/storageAccounts/blobServices/containers/immutabilityPolicies@2024-01-01' = if (!anchorsLocked) {
  parent: anchors
  name: 'default'
  properties: {
    immutabilityPeriodSinceCreationInDays: anchorRetentionDays
    allowProtectedAppendWrites: false
  }
}

resource endpoints 'Microsoft.Network/privateEndpoints@2024-05-01' = [for service in services: {
  name: '${name}-${service}'
  location: location
  properties: {
    subnet: {
      id: endpointsSubnetId
    }
    privateLinkServiceConnections: [
      {
        name: service
        properties: {
          privateLinkServiceId: account.id
          groupIds: [
            service
          ]
        }
      }
    ]
  }
}]

// Within the network, the usual name of each service is its private address.
resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' = [for service in services: {
  name: 'privatelink.${service}.${environment().suffixes.storage}'
  location: 'global'
}]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [for (service, index) in services: {
  parent: zones[index]
  name: '${name}-${service}'
  location: 'global'
  properties: {
    registrationEnabled: false
    virtualNetwork: {
      id: networkId
    }
  }
}]

resource records 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-05-01' = [for (service, index) in services: {
  parent: endpoints[index]
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: service
        properties: {
          privateDnsZoneId: zones[index].id
        }
      }
    ]
  }
}]

resource blobLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: blobs
  name: 'logs'
  properties: {
    workspaceId: workspaceId
    logs: [for category in storageLogs: {
      category: category
      enabled: true
    }]
    metrics: [
      {
        category: 'Transaction'
        enabled: true
      }
    ]
  }
}

resource queueLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: queues
  name: 'logs'
  properties: {
    workspaceId: workspaceId
    logs: [for category in storageLogs: {
      category: category
      enabled: true
    }]
    metrics: [
      {
        category: 'Transaction'
        enabled: true
      }
    ]
  }
}

resource tableLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: tables
  name: 'logs'
  properties: {
    workspaceId: workspaceId
    logs: [for category in storageLogs: {
      category: category
      enabled: true
    }]
    metrics: [
      {
        category: 'Transaction'
        enabled: true
      }
    ]
  }
}

@description('Name of the account.')
output accountName string = account.name

@description('Id of the account.')
output accountId string = account.id
