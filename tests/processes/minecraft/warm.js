// The versions of the test, compiled before anybody waits for them: the first of each takes a second.
'use strict'

const mc = require('minecraft-protocol')

// Before signatures, with signed logins, with a configuration state.
const versions = ['1.8.8', '1.19.2', '1.21.1']

module.exports = (isServer) => {
  for (const version of versions) {
    const client = new mc.Client(isServer, version)
    client.state = 'login'
    if (require('minecraft-data')(version).supportFeature('hasConfigurationState')) client.state = 'configuration'
    client.state = 'play'
  }
}
