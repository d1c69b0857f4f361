// Minecraft clients by order, as JSON lines. Ends with its stdin.
//
//   {"op":"login","name":…,"port":…,"version":…}   → joined, disconnected with its reason, or ended
//   {"op":"status","port":…,"version":…}           → status
'use strict'

const mc = require('minecraft-protocol')

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

function login ({ name, port, version }) {
  const client = mc.createClient({
    host: '127.0.0.1',
    port,
    username: name,
    version,
    auth: 'offline',
    hideErrors: true,
    // Else the types of plugin channels are compiled anew for every client, a fifth of a second each.
    validateChannelProtocol: false
  })
  // The first packet of the game itself: login, and from 1.20.2 on configuration, went both ways.
  client.once('login', () => say({ event: 'joined', name }))
  client.once('disconnect', (packet) => say({ event: 'disconnected', name, reason: packet.reason }))
  client.once('error', (error) => say({ event: 'error', name, error: String(error) }))
  client.once('end', () => say({ event: 'ended', name }))
}

function status ({ port, version }) {
  mc.ping({ host: '127.0.0.1', port, version }, (error, answer) => {
    say(error ? { event: 'error', error: String(error) } : { event: 'status', ...answer })
  })
}

const lines = require('readline').createInterface({ input: process.stdin })
lines.on('line', (line) => {
  const order = JSON.parse(line)
  if (order.op === 'login') login(order)
  if (order.op === 'status') status(order)
})
lines.on('close', () => process.exit(0))
require('./warm')(false)
say({ event: 'ready' })
