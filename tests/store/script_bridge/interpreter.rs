//! Runs a script under Lua 5.4 with `redis.call` handed on to a server, and refuses what a cluster, Dragonfly or another
//! Lua would refuse: a key that was not declared, a command that is not on the list, a number that is no whole one.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Error, Function, Lua, LuaOptions, MultiValue, Result, StdLib, Value};

use super::reply::Reply;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Looks.
    Read,
    /// Changes a key.
    Write,
    /// Tells subscribers.
    Publish,
}

/// Which arguments of a command are keys.
#[derive(Debug, Clone, Copy)]
enum KeyArgs {
    None,
    First,
    All,
}

/// STO-4: the commands that a script may call, and where their keys stand.
const COMMANDS: [(&str, Effect, KeyArgs); 23] = [
    ("DEL", Effect::Write, KeyArgs::All),
    ("EXISTS", Effect::Read, KeyArgs::All),
    ("HDEL", Effect::Write, KeyArgs::First),
    ("HGET", Effect::Read, KeyArgs::First),
    ("HLEN", Effect::Read, KeyArgs::First),
    ("HMGET", Effect::Read, KeyArgs::First),
    ("HSET", Effect::Write, KeyArgs::First),
    ("PEXPIRE", Effect::Write, KeyArgs::First),
    ("PEXPIREAT", Effect::Write, KeyArgs::First),
    ("PTTL", Effect::Read, KeyArgs::First),
    ("PUBLISH", Effect::Publish, KeyArgs::None),
    ("SADD", Effect::Write, KeyArgs::First),
    ("SCARD", Effect::Read, KeyArgs::First),
    ("SMEMBERS", Effect::Read, KeyArgs::First),
    ("SREM", Effect::Write, KeyArgs::First),
    ("TIME", Effect::Read, KeyArgs::None),
    ("ZADD", Effect::Write, KeyArgs::First),
    ("ZCARD", Effect::Read, KeyArgs::First),
    ("ZCOUNT", Effect::Read, KeyArgs::First),
    ("ZRANGEBYSCORE", Effect::Read, KeyArgs::First),
    ("ZREM", Effect::Write, KeyArgs::First),
    ("ZREMRANGEBYSCORE", Effect::Write, KeyArgs::First),
    ("ZSCORE", Effect::Read, KeyArgs::First),
];

/// One `redis.call` that a script made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The command.
    pub command: String,
    /// What it does.
    pub effect: Effect,
    /// What stands behind the command.
    pub args: Vec<String>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The reply; `Err` where the script was ended by an error, with its text.
    pub reply: std::result::Result<Reply, String>,
    /// What it called, in order.
    pub calls: Vec<Call>,
}

/// The other end of `redis.call`: the command and its arguments, and what the server says to it.
pub type Server = Rc<dyn Fn(&[Vec<u8>]) -> Reply>;

/// Runs `source` with these keys and arguments.
pub fn run(source: &str, keys: &[String], args: &[String], server: &Server) -> Outcome {
    let calls = Rc::new(RefCell::new(Vec::new()));
    let reply = evaluate(source, keys, args, server, &calls).map_err(|error| error.to_string());
    Outcome { reply, calls: calls.take() }
}

fn evaluate(
    source: &str,
    keys: &[String],
    args: &[String],
    server: &Server,
    calls: &Rc<RefCell<Vec<Call>>>,
) -> Result<Reply> {
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::default())?;
    let globals = lua.globals();
    for absent in ["collectgarbage", "dofile", "load", "loadfile", "print", "require", "warn"] {
        globals.raw_set(absent, Value::Nil)?;
    }
    globals.raw_set("KEYS", lua.create_sequence_from(keys.iter().map(String::as_str))?)?;
    globals.raw_set("ARGV", lua.create_sequence_from(args.iter().map(String::as_str))?)?;
    let redis = lua.create_table()?;
    for (name, is_protected) in [("call", false), ("pcall", true)] {
        let call = call_function(&lua, keys.to_vec(), Rc::clone(server), Rc::clone(calls), is_protected)?;
        redis.raw_set(name, call)?;
    }
    for (name, field) in [("error_reply", "err"), ("status_reply", "ok")] {
        let reply = lua.create_function(move |lua, text: String| lua.create_table_from([(field, text)]))?;
        redis.raw_set(name, reply)?;
    }
    globals.raw_set("redis", redis)?;

    // Servers refuse globals of a script's own: a forgotten `local` works here and fails there.
    let guard = lua.create_table()?;
    let unknown = |what: &'static str| {
        lua.create_function(move |_, (_, name): (Value, Value)| -> Result<()> {
            Err(Error::RuntimeError(format!("{what} of the global variable {name:?}")))
        })
    };
    guard.raw_set("__index", unknown("reading")?)?;
    guard.raw_set("__newindex", unknown("creation")?)?;
    globals.set_metatable(Some(guard))?;

    Reply::from_lua(&lua.load(source).set_name("=script").eval::<Value>()?)
}

/// `redis.call`, or `redis.pcall`: there what the server refuses is a table with `err`.
fn call_function(
    lua: &Lua,
    keys: Vec<String>,
    server: Server,
    calls: Rc<RefCell<Vec<Call>>>,
    is_protected: bool,
) -> Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let command: Vec<Vec<u8>> = values.iter().map(argument).collect::<Result<_>>()?;
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let Some((name, args)) = command.split_first() else {
            return Err(Error::RuntimeError("redis.call without a command".to_owned()));
        };
        let name = text(name);
        let Some((_, effect, key_args)) = COMMANDS.into_iter().find(|(known, ..)| *known == name) else {
            return Err(Error::RuntimeError(format!("the command {name:?} is not one that every server has")));
        };
        let key_count = match key_args {
            KeyArgs::None => 0,
            KeyArgs::First => 1,
            KeyArgs::All => args.len(),
        };
        for key in &args[..key_count.min(args.len())] {
            if !keys.iter().any(|declared| declared.as_bytes() == key.as_slice()) {
                return Err(Error::RuntimeError(format!("{name} of the key {:?}, which is not in KEYS", text(key))));
            }
        }
        let call = Call { command: name, effect, args: args.iter().map(text).collect() };
        calls.borrow_mut().push(call);
        match server(&command) {
            Reply::Error(text) if is_protected => Ok(Value::Table(lua.create_table_from([("err", text)])?)),
            reply => reply.to_lua(lua),
        }
    })
}

/// Texts and whole numbers are arguments. Another number is refused: Lua 5.1 would write it with 14 digits or an
/// exponent, 5.4 with `.0`.
fn argument(value: &Value) -> Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        other => Err(Error::RuntimeError(format!("a {} as an argument of redis.call: {other:?}", other.type_name()))),
    }
}
