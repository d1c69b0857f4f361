use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use redis::aio::{ConnectionLike, ConnectionManager};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::clock::boot_ms;
use super::connect::Store;
use super::fault;
use super::invocation::{Answer, Invocation};
use super::scripts::Script;
use crate::error::{Error, Result, StoreRefusal};

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

/// What a call ends with whose earlier try had no answer: a later refusal of the store is no definite outcome.
fn still_unknown(store: &Store, error: Error) -> Error {
    match error {
        Error::Refused { during, detail, .. } => {
            store.unreachable(during, &format!("no answer, then refused: {detail}"))
        }
        error => error,
    }
}

impl Store {
    /// Runs a script, repeated under the same operation until its outcome is definite or the store's operation time is
    /// over (then [`Error::Unreachable`], and the outcome is not known). NOSCRIPT is healed by a reload and a retry.
    ///
    /// Not cancel safe in the sense that a script that was sent runs although the future is dropped; repeating the
    /// same invocation is always safe.
    ///
    /// Of thousands at once a few hundred are sent and the others wait for their turn, within the same time: behind all of
    /// them the store's answers would come too late for the last ones, which would then be sent again.
    pub async fn run(&self, invocation: &Invocation) -> Result<Answer> {
        let deadline = Instant::now() + self.options().operation_timeout;
        let Ok(_turn) = timeout_at(deadline, self.turns().acquire()).await else {
            return Err(self.unreachable(invocation.script().name(), "not sent: too many calls wait for the store"));
        };
        self.run_until(invocation, deadline).await
    }

    /// Like [`run`](Self::run), ahead of all that wait for their turn: what keeps a node in the fleet.
    pub async fn run_first(&self, invocation: &Invocation) -> Result<Answer> {
        self.run_until(invocation, Instant::now() + self.options().operation_timeout).await
    }

    /// Like [`run_first`](Self::run_first), until `deadline`. At least one attempt is made.
    pub async fn run_until(&self, invocation: &Invocation, deadline: Instant) -> Result<Answer> {
        let script = invocation.script();
        let mut pauses = retry_pauses();
        let mut unknown = false;
        loop {
            let started = std::time::Instant::now();
            let outcome = self.run_once(invocation, deadline).await;
            measure(script, &outcome, started.elapsed());
            match outcome {
                Err(error) if passes_by_itself(&error) => {
                    unknown |= matches!(error, Error::Unreachable { .. });
                    let pause = pauses.next().unwrap_or(MAX_PAUSE);
                    // After a definite answer, a try with hardly any time left would only make the outcome unknown.
                    let least = if unknown { Duration::ZERO } else { self.least_try() };
                    if Instant::now() + pause + least >= deadline {
                        return Err(if unknown { still_unknown(self, error) } else { error });
                    }
                    metrics::counter!("maitred_script_retries_total", "script" => script.name()).increment(1);
                    tracing::debug!(script = script.name(), %error, "repeating under the same operation");
                    sleep(pause).await;
                }
                // An earlier try may have had its effect: that the store refuses the repeat says nothing of it.
                Err(error @ Error::Refused { .. }) if unknown => return Err(still_unknown(self, error)),
                outcome => return outcome,
            }
        }
    }

    /// The least time for a repeat to be worth it.
    fn least_try(&self) -> Duration {
        let options = self.options();
        (options.command_timeout / 2).min(options.operation_timeout / 4)
    }

    async fn run_once(&self, invocation: &Invocation, deadline: Instant) -> Result<Answer> {
        let script = invocation.script();
        let mut value = self.send(invocation.command(), deadline).await;
        for _ in 0..RELOADS_MAX {
            if !matches!(&value, Err(Sent::Redis(error)) if fault::is_no_script(error)) {
                break;
            }
            value = match self.send_loaded(&[invocation], script.name()).await?.pop() {
                Some(Value::ServerError(error)) => Err(Sent::Redis(RedisError::from(error))),
                Some(value) => Ok(value),
                None => Err(Sent::Late),
            };
        }
        Answer::read(script, value.map_err(|sent| fault::at(sent.typed(self, script.name()), invocation.keys()))?)
    }

    /// Sends many calls in one pipeline and answers each in its place. What was refused with NOSCRIPT is sent again
    /// after a reload, and only that. Not repeated on an unknown outcome: then every call has that error.
    pub async fn run_many(&self, invocations: &[Invocation]) -> Result<Vec<Result<Answer>>> {
        let during = "a pipeline of scripts";
        let started = std::time::Instant::now();
        let mut values = self.send_all(invocations.iter().map(|call| call.command()), during).await?;
        for _ in 0..RELOADS_MAX {
            let missing: Vec<usize> =
                values.iter().enumerate().filter(|(_, value)| is_no_script(value)).map(|(index, _)| index).collect();
            if missing.is_empty() {
                break;
            }
            let again: Vec<&Invocation> = missing.iter().filter_map(|index| invocations.get(*index)).collect();
            let late = self.send_loaded(&again, during).await?;
            for (index, value) in missing.into_iter().zip(late) {
                if let Some(place) = values.get_mut(index) {
                    *place = value;
                }
            }
        }
        // What one call of a pipeline took is what the caller waited for it: the whole of it.
        let took = started.elapsed();
        let answers = invocations.iter().zip(values).map(|(call, value)| {
            let outcome = match value {
                Value::ServerError(error) => {
                    Err(self.fault_at(call.script().name(), &RedisError::from(error), call.keys()))
                }
                value => Answer::read(call.script(), value),
            };
            measure(call.script(), &outcome, took);
            outcome
        });
        Ok(answers.collect())
    }

    /// Loads the scripts of `calls` and sends the calls behind them in the same write, so that hardly anything comes in
    /// between.
    async fn send_loaded(&self, calls: &[&Invocation], during: &'static str) -> Result<Vec<Value>> {
        let mut needed: Vec<&'static Script> = calls.iter().map(|call| call.script()).collect();
        needed.sort_unstable_by_key(|script| script.name());
        needed.dedup_by_key(|script| script.name());
        let loads: Vec<Cmd> = needed.iter().map(|script| load_command(script)).collect();
        let commands = loads.iter().chain(calls.iter().map(|call| call.command()));
        let mut loaded = self.send_all(commands, during).await?;
        let values = loaded.split_off(loads.len().min(loaded.len()));
        for (script, value) in needed.into_iter().zip(loaded) {
            metrics::counter!("maitred_script_reloads_total", "script" => script.name()).increment(1);
            let value = value.extract_error().map_err(|error| self.fault("SCRIPT LOAD", &error))?;
            check_pin(script, value)?;
        }
        Ok(values)
    }

    async fn send_all<'a>(&self, commands: impl Iterator<Item = &'a Cmd>, during: &'static str) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::new();
        let mut count = 0;
        for command in commands {
            pipeline.add_command(command.clone());
            count += 1;
        }
        let bound = Instant::now() + self.options().command_timeout + self.options().connect_timeout;
        let answered = self.on_shared(bound, async |mut connection: ConnectionManager| {
            connection.req_packed_commands(&pipeline, 0, count).await
        });
        answered.await.map_err(|sent| sent.typed(self, during))
    }

    /// One command on the shared connection, bounded by the command timeout and by `deadline`.
    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Sent> {
        let bound = deadline.min(Instant::now() + self.options().command_timeout);
        let answered = self
            .on_shared(bound, async |mut connection: ConnectionManager| connection.req_packed_command(command).await);
        // At this level the client hands on a refusal of the store as a value.
        answered.await.and_then(|value| value.extract_error().map_err(Sent::Redis))
    }

    /// Uses the shared connection until `bound`, and takes note of whether it was heard.
    async fn on_shared<T>(
        &self,
        bound: Instant,
        ask: impl AsyncFnOnce(ConnectionManager) -> RedisResult<T>,
    ) -> Result<T, Sent> {
        let carrier = self.shared().carrier();
        let sent_ms = boot_ms();
        let outcome = timeout_at(bound, ask(carrier.connection())).await;
        if let Ok(outcome) = &outcome {
            self.link().note(outcome);
        }
        match outcome {
            Ok(Ok(answer)) => {
                carrier.heard();
                Ok(answer)
            }
            Ok(Err(error)) => {
                if self.shared().failed(&carrier, sent_ms, &error) {
                    self.link().replaced();
                }
                Err(Sent::Redis(error))
            }
            Err(_) => {
                if self.shared().late(&carrier, sent_ms) {
                    self.link().replaced();
                }
                Err(Sent::Late)
            }
        }
    }

    /// SCRIPT LOAD, and the comparison of the store's answer with the pin.
    pub(super) async fn load_script(&self, script: &'static Script) -> Result<()> {
        let deadline = Instant::now() + self.options().command_timeout;
        let value = self.send(&load_command(script), deadline).await.map_err(|sent| sent.typed(self, "SCRIPT LOAD"))?;
        check_pin(script, value)
    }
}

fn measure(script: &'static Script, outcome: &Result<Answer>, took: Duration) {
    let answer = match outcome {
        Ok(answer) => script.answers().iter().find(|word| **word == answer.word()).copied().unwrap_or("OTHER"),
        Err(Error::Unreachable { .. }) => "UNREACHABLE",
        Err(_) => "ERROR",
    };
    let labels = [("script", script.name()), ("answer", answer)];
    metrics::counter!("maitred_script_calls_total", &labels).increment(1);
    metrics::histogram!("maitred_script_seconds", &labels).record(took.as_secs_f64());
}

fn load_command(script: &'static Script) -> Cmd {
    redis::cmd("SCRIPT").arg("LOAD").arg(script.source()).clone()
}

fn check_pin(script: &'static Script, answer: Value) -> Result<()> {
    let loaded: String = redis::from_redis_value(answer)
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

/// How often one try loads its script again: the next flush may fall between the load and the call.
const RELOADS_MAX: usize = 16;

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
    pub(super) fn typed(&self, store: &Store, during: &'static str) -> Error {
        match self {
            Self::Late => store.unreachable(during, "no answer inside the command timeout"),
            Self::Redis(error) => store.fault(during, error),
        }
    }
}

fn is_no_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
