// A Minecraft server in offline mode that tells of everybody who reaches it, as JSON lines. Ends with its stdin.
//
//   listening {port}, handshake {host, port, protocol}, login {name}, left {name}, error {name, error}
'use strict'

const mc = require('minecraft-protocol')
const data = require('minecraft-data')

// The data has this packet from 1.16 on.
const before116 = {
  entityId: 1, gameMode: 0, dimension: 0, difficulty: 1, maxPlayers: 20, levelType: 'default', reducedDebugInfo: false
}
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

require('./warm')(true)
// Every version that has its data; the handshake says which.
const server = mc.createServer({
  host: '127.0.0.1',
  port: 0,
  version: false,
  'online-mode': false,
  hideErrors: true,
  // Else the types of plugin channels are compiled anew for every client, a fifth of a second each.
  validateChannelProtocol: false,
  errorHandler: (client, error) => {
    say({ event: 'error', name: client.username, error: String(error) })
    client.end('error')
  }
})
server.on('listening', () => say({ event: 'listening', port: server.socketServer.address().port }))
server.on('connection', (client) => {
  client.once('set_protocol', ({ serverHost, serverPort, protocolVersion }) => {
    say({ event: 'handshake', host: serverHost, port: serverPort, protocol: protocolVersion })
  })
  client.once('login_start', (packet) => say({ event: 'login', name: packet.username }))
  client.once('end', () => say({ event: 'left', name: client.username }))
})
server.on('playerJoin', (client) => {
  client.write('login', data(client.version).loginPacket || before116)
})
server.on('error', (error) => {
  say({ event: 'fatal', error: String(error) })
  process.exit(1)
})

process.stdin.resume()
process.stdin.on('end', () => process.exit(0))
