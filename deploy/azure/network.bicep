// The virtual network: a subnet of the replicas, one of the private endpoints of the storage account, and one for machines
// of operators.

@description('Region.')
param location string

@description('Beginning of the names of all resources.')
param name string

@description('Addresses of the network.')
param networkPrefix string

@description('Addresses of the subnet of the replicas.')
param appsPrefix string

@description('Addresses of the subnet of the private endpoints.')
param endpointsPrefix string

@description('Addresses of the subnet for machines of operators.')
param operatorsPrefix string

// The subnet of the replicas has no rules: the platform needs flows of its own, which differ between regions and
// change. Replicas have no public address, and the ingress of Container Apps is the only way to them from outside.
resource endpointRules 'Microsoft.Network/networkSecurityGroups@2024-05-01' = {
  name: '${name}-endpoints'
  location: location
  properties: {
    securityRules: [
      {
        name: 'this-network-uses-the-storage'
        properties: {
          priority: 100
          direction: 'Inbound'
          access: 'Allow'
          protocol: 'Tcp'
          sourceAddressPrefix: networkPrefix
          sourcePortRange: '*'
          destinationAddressPrefix: endpointsPrefix
          destinationPortRange: '443'
        }
      }
      {
        name: 'nothing-else'
        properties: {
          priority: 4096
          direction: 'Inbound'
          access: 'Deny'
          protocol: '*'
          sourceAddressPrefix: '*'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '*'
        }
      }
    ]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: '${name}-network'
  location: location
  properties: {
    addressSpace: {
      addressPrefixes: [
        networkPrefix
      ]
    }
    // All subnets are here: a deployment removes others.
    subnets: [
      {
        name: 'apps'
        properties: {
          addressPrefix: appsPrefix
          delegations: [
            {
              name: 'container-apps'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: endpointsPrefix
          networkSecurityGroup: {
            id: endpointRules.id
          }
          // Otherwise the rules do not apply to private endpoints.
          privateEndpointNetworkPolicies: 'NetworkSecurityGroupEnabled'
          defaultOutboundAccess: false
        }
      }
      {
        name: 'operators'
        properties: {
          addressPrefix: operatorsPrefix
        }
      }
    ]
  }
}

@description('Id of the network.')
output networkId string = network.id

@description('Id of the subnet of the replicas.')
output appsSubnetId string = '${network.id}/subnets/apps'

@description('Id of the subnet of the private endpoints.')
output endpointsSubnetId string = '${network.id}/subnets/endpoints'
