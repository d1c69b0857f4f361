//! What is in a store, all of it, so that two states can be compared.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Cmd, Connection, Value};

use super::reply::Reply;

/// The rest of a key's time may differ by what lies between two looks.
const TTL_SLACK_MS: i64 = 10_000;

/// Key to its type, its contents, and the rest of its time in ms.
pub type Contents = BTreeMap<String, (String, Vec<String>, i64)>;

/// Errors with the first difference. Times to live are compared roughly.
pub fn same(left: &Contents, right: &Contents) -> Result<(), String> {
    let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for key in keys {
        let (Some((kind, values, ttl)), Some((other_kind, other_values, other_ttl))) = (left.get(key), right.get(key))
        else {
            return Err(format!("{key}: {:?}, {:?}", left.get(key), right.get(key)));
        };
        let both_run_out = *ttl >= 0 && *other_ttl >= 0 && (ttl - other_ttl).abs() < TTL_SLACK_MS;
        if kind != other_kind || values != other_values || !(both_run_out || ttl == other_ttl) {
            return Err(format!("{key}: {kind} {values:?} {ttl} ms, {other_kind} {other_values:?} {other_ttl} ms"));
        }
    }
    Ok(())
}

/// Reads everything.
pub fn contents(connection: &mut Connection) -> Contents {
    let mut found = Contents::new();
    for key in keys_of(connection) {
        let kind = match ask(connection, &words(["TYPE", &key])) {
            Reply::Status(kind) => kind,
            other => panic!("TYPE answered {other:?}"),
        };
        let read = match kind.as_str() {
            "hash" => words(["HGETALL", &key]),
            "set" => words(["SMEMBERS", &key]),
            "zset" => words(["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
            "list" => words(["LRANGE", &key, "0", "-1"]),
            "none" => continue,
            other => panic!("{key} is a {other}"),
        };
        let values = ask(connection, &read).texts().expect("texts");
        let values = match kind.as_str() {
            "hash" => sorted(values.chunks(2).map(|pair| pair.join(" = ")).collect()),
            "set" => sorted(values),
            _ => values,
        };
        let Reply::Int(ttl) = ask(connection, &words(["PTTL", &key])) else { panic!("PTTL") };
        found.insert(key, (kind, values, ttl));
    }
    found
}

fn sorted(mut values: Vec<String>) -> Vec<String> {
    values.sort();
    values
}

/// The names of all keys.
pub fn keys_of(connection: &mut Connection) -> Vec<String> {
    ask(connection, &words(["KEYS", "*"])).texts().expect("names of keys")
}

/// A command out of its words.
pub fn words<const N: usize>(words: [&str; N]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    command
}

/// One command, one reply.
pub fn ask(connection: &mut Connection, command: &Cmd) -> Reply {
    ask_all(connection, std::slice::from_ref(command)).remove(0)
}

/// Many commands in one go. Errors of the server are replies here, not errors of the call.
pub fn ask_all(connection: &mut Connection, commands: &[Cmd]) -> Vec<Reply> {
    let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    connection.send_packed_command(&packed).expect("the store is there");
    let read = |_| -> Value { connection.recv_response().expect("the store answers") };
    (0..commands.len()).map(read).map(|value| Reply::of(&value)).collect()
}
