//! The floors of the server's time: the writes of the token scripts with their keys and arguments, and nothing else.
//! They are loaded for a measurement and are no scripts of the product. A write that the measured way does not make
//! (SREM of a server whose last token went) is in none of them.

/// The writes of `token/issue` for a player without a row.
pub(super) const ISSUE: &str = r"
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'state', 'PENDING', 'player', ARGV[2], 'server', ARGV[3],
  'server_epoch', ARGV[4], 'request', ARGV[5], 'attempt', ARGV[6], 'payload', ARGV[7], 'issued_at', ARGV[8],
  'expires_at', ARGV[9], 'v', ARGV[10], 'sig', ARGV[11])
redis.call('PEXPIREAT', KEYS[1], ARGV[9])
redis.call('ZADD', KEYS[3], ARGV[9], ARGV[2])
redis.call('SADD', KEYS[4], ARGV[3])
return { 'ISSUED' }
";

/// The writes of `token/claim`. The epoch stands in for the time, which has as many digits.
pub(super) const CLAIM: &str = r"
redis.call('HSET', KEYS[1], 'state', 'CLAIMED', 'claimant', ARGV[3], 'claimant_epoch', ARGV[4],
  'claimed_at', ARGV[4], 'claim_op', ARGV[5], 'claim_sig', ARGV[6])
return { 'CLAIMED' }
";

/// The writes of `token/consume`. The epoch stands in for the time.
pub(super) const CONSUME: &str = r"
redis.call('HSET', KEYS[1], 'state', 'CONSUMED', 'consume_op', ARGV[5], 'consumed_at', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('ZREM', KEYS[3], ARGV[2])
return { 'CONSUMED' }
";

/// The writes of `route/acquire` for an object without a record.
pub(super) const ACQUIRE: &str = r"
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('SADD', KEYS[4], ARGV[2])
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'owner_epoch', ARGV[3], 'version', ARGV[4], 'saved_at', ARGV[4],
  'state', 'OWNED', 'v', ARGV[5], 'sig', ARGV[6])
return { 'ACQUIRED', ARGV[4] }
";

/// The write of `route/renew`.
pub(super) const RENEW: &str = r"
redis.call('HSET', KEYS[1], 'saved_at', ARGV[5])
return { 'RENEWED' }
";

/// The writes of `route/release`.
pub(super) const RELEASE: &str = r"
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[1], 'owner', '', 'owner_epoch', '0', 'version', ARGV[6], 'state', 'FREE', 'v', ARGV[7],
  'sig', ARGV[8])
redis.call('PEXPIRE', KEYS[1], ARGV[9])
return { 'RELEASED' }
";

/// Nothing: what a call costs by itself.
pub(super) const NOTHING: &str = "return { 'OK' }";
