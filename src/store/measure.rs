use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisError, Value};
use tokio::time::{Instant, timeout_at};

use super::connect::Store;
use super::fault;
use super::invocation::Invocation;
use crate::error::{Error, Result};

/// A call of a script that is not of the product: what a measurement holds a real call against.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct BareCall(Cmd);

#[doc(hidden)]
impl Invocation {
    /// The same keys and arguments for the script behind `sha`.
    pub fn bare(&self, sha: &str) -> BareCall {
        let mut command = redis::cmd("EVALSHA");
        command.arg(sha);
        for arg in self.command().args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        BareCall(command)
    }
}

/// For measurements only: nothing here is repeated, loaded again or checked.
#[doc(hidden)]
impl Store {
    /// Loads a script that is not of the product. Answers its hash.
    pub async fn load_bare(&self, source: &str) -> Result<String> {
        self.bare_command(&["SCRIPT", "LOAD", source]).await
    }

    /// One call, as cheap as the client can do it.
    pub async fn run_bare(&self, call: &BareCall) -> Result<()> {
        let during = "a bare script";
        let mut connection = self.shared().carrier().connection();
        let value = connection.req_packed_command(&call.0).await.map_err(|error| self.fault(during, &error))?;
        refused(during, value)
    }

    /// Many calls in one pipeline.
    pub async fn run_bare_many(&self, calls: &[BareCall]) -> Result<()> {
        let during = "a pipeline of bare scripts";
        let mut pipeline = Pipeline::new();
        for call in calls {
            pipeline.add_command(call.0.clone());
        }
        let mut connection = self.shared().carrier().connection();
        let values = connection
            .req_packed_commands(&pipeline, 0, calls.len())
            .await
            .map_err(|error| self.fault(during, &error))?;
        values.into_iter().try_for_each(|value| refused(during, value))
    }

    /// Any command with one answer that is a text or a number.
    pub async fn bare_command(&self, words: &[&str]) -> Result<String> {
        let during = "measuring";
        let mut command = Cmd::new();
        command.arg(words);
        let mut connection = self.shared().carrier().connection();
        let bound = Instant::now() + self.options().operation_timeout;
        let late = |_| self.unreachable(during, "no answer inside the operation timeout");
        let value = timeout_at(bound, connection.req_packed_command(&command)).await.map_err(late)?;
        let value = value.map_err(|error| self.fault(during, &error))?;
        redis::from_redis_value(value).map_err(|error| Error::Protocol { during, detail: error.to_string() })
    }
}

fn refused(during: &'static str, value: Value) -> Result<()> {
    match value {
        Value::ServerError(error) => Err(fault::typed(during, &RedisError::from(error))),
        _ => Ok(()),
    }
}
