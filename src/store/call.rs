use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::connect::Store;
use super::fault;
use super::keys::Key;
use super::scripts::Script;
use crate::error::{Error, Result, StoreRefusal};

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

    /// Adds an argument, in the order of the script's header.
    #[must_use]
    pub fn arg(mut self, value: impl ScriptArg) -> Self {
        value.push(&mut self.command);
        self
    }
}

/// What may be an argument of a script: texts, bytes, whole numbers, keys and channels.
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
script_arg!(&str, &String, &[u8], &Vec<u8>, u64, u32, usize, Key<'_>);

/// What a script answered: a word of its header and the values behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    script: &'static str,
    items: Vec<String>,
}

impl Answer {
    fn read(script: &'static Script, value: Value) -> Result<Self> {
        let strange = |detail: String| Error::Protocol { during: script.name(), detail };
        let items: Vec<String> = redis::from_redis_value(value).map_err(|error| strange(error.to_string()))?;
        match items.first() {
            Some(word) if script.answers().contains(&word.as_str()) => Ok(Self { script: script.name(), items }),
            Some(word) => Err(strange(format!("unknown answer {word:?}"))),
            None => Err(strange("an empty answer".to_owned())),
        }
    }

    /// The word.
    pub fn word(&self) -> &str {
        self.items.first().map_or("", String::as_str)
    }

    /// The values behind the word.
    pub fn values(&self) -> &[String] {
        self.items.get(1..).unwrap_or(&[])
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

/// True where the command had no effect and the same command may be taken later without anybody's help.
fn passes_by_itself(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Refused { refusal, .. } => matches!(
            refusal,
            StoreRefusal::Loading | StoreRefusal::BusyScript | StoreRefusal::TryAgain | StoreRefusal::ClusterDown
        ),
        _ => false,
    }
}

/// The error of an operation whose outcome stays unknown, with the last thing that was heard.
fn still_unknown(script: &Script, last: &Error) -> Error {
    match last {
        Error::Unreachable { during, reason } => Error::Unreachable { during, reason: reason.clone() },
        other => Error::Unreachable { during: script.name(), reason: format!("an answer was lost, then {other}") },
    }
}

impl Store {
    /// Runs a script, repeated under the same operation until its outcome is definite or the store's operation time is
    /// over (then [`Error::Unreachable`], and the outcome is not known). NOSCRIPT is healed by one reload and one retry.
    ///
    /// Not cancel safe in the sense that a script that was sent runs although the future is dropped; repeating the
    /// same invocation is always safe.
    pub async fn run(&self, invocation: &Invocation) -> Result<Answer> {
        self.run_until(invocation, Instant::now() + self.options().operation_timeout).await
    }

    /// Like [`run`](Self::run), until `deadline`. At least one attempt is made.
    pub async fn run_until(&self, invocation: &Invocation, deadline: Instant) -> Result<Answer> {
        let script = invocation.script;
        let mut pauses = retry_pauses();
        let mut unknown = false;
        loop {
            let started = std::time::Instant::now();
            let outcome = self.run_once(invocation, deadline).await;
            metrics::histogram!("maitred_script_seconds", "script" => script.name())
                .record(started.elapsed().as_secs_f64());
            let word = match &outcome {
                Ok(answer) => script.answers().iter().find(|word| **word == answer.word()).copied().unwrap_or("OTHER"),
                Err(Error::Unreachable { .. }) => "UNREACHABLE",
                Err(_) => "ERROR",
            };
            metrics::counter!("maitred_script_calls_total", "script" => script.name(), "answer" => word).increment(1);
            match outcome {
                Err(error) if passes_by_itself(&error) => {
                    let pause = pauses.next().unwrap_or(MAX_PAUSE);
                    unknown |= error.may_have_changed();
                    if Instant::now() + pause >= deadline {
                        return Err(if unknown { still_unknown(script, &error) } else { error });
                    }
                    metrics::counter!("maitred_script_retries_total", "script" => script.name()).increment(1);
                    tracing::debug!(script = script.name(), %error, "repeating under the same operation");
                    sleep(pause).await;
                }
                // What a refused repeat says of itself it does not say of the try before it, which may have run.
                Err(error @ Error::Refused { .. }) if unknown => return Err(still_unknown(script, &error)),
                outcome => return outcome,
            }
        }
    }

    async fn run_once(&self, invocation: &Invocation, deadline: Instant) -> Result<Answer> {
        let script = invocation.script;
        let value = match self.send(&invocation.command, deadline).await {
            Err(Sent::Redis(error)) if fault::is_no_script(&error) => {
                self.load_script(script).await?;
                self.send(&invocation.command, deadline).await
            }
            other => other,
        };
        Answer::read(script, value.map_err(|sent| sent.typed(script.name()))?)
    }

    /// Sends many calls in one pipeline and answers each in its place. What was refused with NOSCRIPT is sent again
    /// after a reload, and only that. Not repeated on an unknown outcome: then every call has that error.
    pub async fn run_many(&self, invocations: &[Invocation]) -> Result<Vec<Result<Answer>>> {
        let during = "a pipeline of scripts";
        let mut values = self.send_all(invocations.iter().map(|call| &call.command), during).await?;
        let missing: Vec<usize> =
            values.iter().enumerate().filter(|(_, value)| is_no_script(value)).map(|(index, _)| index).collect();
        if !missing.is_empty() {
            let again: Vec<&Invocation> = missing.iter().filter_map(|index| invocations.get(*index)).collect();
            for call in &again {
                self.load_script(call.script).await?;
            }
            let late = self.send_all(again.iter().map(|call| &call.command), during).await?;
            for (index, value) in missing.into_iter().zip(late) {
                if let Some(place) = values.get_mut(index) {
                    *place = value;
                }
            }
        }
        let answers = invocations.iter().zip(values).map(|(call, value)| match value {
            Value::ServerError(error) => Err(fault::typed(call.script.name(), &RedisError::from(error))),
            value => Answer::read(call.script, value),
        });
        Ok(answers.collect())
    }

    async fn send_all<'a>(&self, commands: impl Iterator<Item = &'a Cmd>, during: &'static str) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::new();
        let mut count = 0;
        for command in commands {
            pipeline.add_command(command.clone());
            count += 1;
        }
        let mut connection = self.shared();
        let bound = Instant::now() + self.options().command_timeout + self.options().connect_timeout;
        match timeout_at(bound, connection.req_packed_commands(&pipeline, 0, count)).await {
            Ok(values) => values.map_err(|error| fault::typed(during, &error)),
            Err(_) => Err(Sent::Late.typed(during)),
        }
    }

    /// One command on the shared connection, bounded by the command timeout and by `deadline`.
    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Sent> {
        let mut connection = self.shared();
        let bound = deadline.min(Instant::now() + self.options().command_timeout);
        match timeout_at(bound, connection.req_packed_command(command)).await {
            // At this level the client hands on a refusal of the store as a value.
            Ok(outcome) => outcome.and_then(Value::extract_error).map_err(Sent::Redis),
            Err(_) => Err(Sent::Late),
        }
    }

    /// SCRIPT LOAD, and the comparison of the store's answer with the pin.
    pub(super) async fn load_script(&self, script: &'static Script) -> Result<()> {
        let command = redis::cmd("SCRIPT").arg("LOAD").arg(script.source()).clone();
        let deadline = Instant::now() + self.options().command_timeout;
        let value = self.send(&command, deadline).await.map_err(|sent| sent.typed("SCRIPT LOAD"))?;
        let loaded: String = redis::from_redis_value(value)
            .map_err(|error| Error::Protocol { during: "SCRIPT LOAD", detail: error.to_string() })?;
        if loaded == script.pinned() {
            return Ok(());
        }
        Err(Error::PinMismatch {
            script: script.name(),
            pinned: script.pinned().to_owned(),
            found_by: "the store answered",
            found: loaded,
        })
    }
}

/// Longest pause between two tries.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Pauses between tries: from 10 ms, doubling, at most 1 s, with jitter so that a fleet does not come back in step.
pub(super) fn retry_pauses() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(MAX_PAUSE / 2)
        .without_max_times()
        .with_jitter()
        .build()
}

/// How a command on the shared connection failed.
pub(super) enum Sent {
    /// No answer inside the time.
    Late,
    /// The client's error.
    Redis(RedisError),
}

impl Sent {
    pub(super) fn typed(&self, during: &'static str) -> Error {
        match self {
            Self::Late => Error::Unreachable { during, reason: "no answer inside the command timeout".to_owned() },
            Self::Redis(error) => fault::typed(during, error),
        }
    }
}

fn is_no_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
