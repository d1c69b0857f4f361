use redis::{Arg, Cmd, Value};

use super::keys::Key;
use super::scripts::Script;
use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, NodeId};

/// One call of a script: its keys, then its arguments. Repeating it has no second effect, because every script is safe
/// to repeat under the operation that is among its arguments.
#[derive(Debug, Clone)]
pub struct Invocation {
    script: &'static Script,
    command: Cmd,
}

impl Invocation {
    /// Starts a call of `script` with `keys`, in the order of its header.
    pub fn new(script: &'static Script, keys: &[Key<'_>]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.pinned()).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        Self { script, command }
    }

    pub(super) fn script(&self) -> &'static Script {
        self.script
    }

    /// What goes to the store: EVALSHA, the hash, keys, arguments.
    pub(super) fn command(&self) -> &Cmd {
        &self.command
    }

    /// The keys, as texts.
    pub(super) fn keys(&self) -> Vec<String> {
        let mut words = self.command.args_iter().skip(2).map(|word| match word {
            Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        });
        let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
        words.take(count).collect()
    }

    /// Adds an argument, in the order of the script's header.
    #[must_use]
    pub fn arg(mut self, value: impl ScriptArg) -> Self {
        value.push(&mut self.command);
        self
    }

    /// Adds node id and epoch, as two arguments.
    #[must_use]
    pub(crate) fn member(self, who: &NodeEpoch) -> Self {
        self.arg(&who.id).arg(who.epoch.0)
    }
}

/// What may be an argument of a script: texts, bytes, whole numbers, flags (`1` or `0`), node ids (empty for none), keys and
/// channels.
pub trait ScriptArg {
    #[doc(hidden)]
    fn push(self, command: &mut Cmd);
}

macro_rules! script_arg {
    ($($type:ty),+) => {$(
        impl ScriptArg for $type {
            fn push(self, command: &mut Cmd) {
                command.arg(self);
            }
        }
    )+};
}
script_arg!(&str, &String, &[u8], &Vec<u8>, u64, u32, u16, usize, Key<'_>);

impl ScriptArg for bool {
    fn push(self, command: &mut Cmd) {
        command.arg(if self { "1" } else { "0" });
    }
}

impl ScriptArg for &NodeId {
    fn push(self, command: &mut Cmd) {
        command.arg(self.as_str());
    }
}

impl ScriptArg for Option<&NodeId> {
    fn push(self, command: &mut Cmd) {
        command.arg(self.map_or("", NodeId::as_str));
    }
}

/// What a script answered: a word of its header and the values behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    script: &'static str,
    word: &'static str,
    values: Vec<String>,
}

impl Answer {
    pub(super) fn read(script: &'static Script, value: Value) -> Result<Self> {
        let strange = |detail: String| Error::Protocol { during: script.name(), detail };
        let mut values: Vec<String> = redis::from_redis_value(value).map_err(|error| strange(error.to_string()))?;
        let Some(found) = values.first() else { return Err(strange("an empty answer".to_owned())) };
        let Some(word) = script.answers().iter().find(|word| *word == found) else {
            return Err(strange(format!("unknown answer {found:?}")));
        };
        values.remove(0);
        Ok(Self { script: script.name(), word, values })
    }

    /// The word.
    pub fn word(&self) -> &'static str {
        self.word
    }

    /// The values behind the word.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The value at `index` behind the word. Errors with [`Error::Protocol`] if there is none.
    pub fn text(&self, index: usize) -> Result<&str> {
        self.values().get(index).map(String::as_str).ok_or_else(|| Error::Protocol {
            during: self.script,
            detail: format!("{} has no value {index}", self.word()),
        })
    }

    /// The whole number at `index` behind the word. Errors with [`Error::Protocol`] if it is none.
    pub fn number(&self, index: usize) -> Result<u64> {
        let text = self.text(index)?;
        text.parse().map_err(|_| Error::Protocol { during: self.script, detail: format!("{text:?} is not a number") })
    }

    /// The error for an answer that this caller has no use for.
    pub fn unexpected(&self) -> Error {
        Error::Protocol { during: self.script, detail: format!("{} does not belong here", self.word()) }
    }
}
