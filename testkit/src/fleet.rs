//! Node processes: the `maitred` binary as one member of a fleet, steered by JSON lines (CLI-3).

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::mpsc;

pub use crate::process::NodeOptions;
use crate::process::Process;
use crate::signal;

const STOP_LIMIT: Duration = Duration::from_secs(15);
const STDERR_SHOWN_BYTES: usize = 16 * 1_024;

/// A running node process; dropping it kills it.
#[derive(Debug)]
pub struct Node {
    process: Process,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Node {
    /// Starts `maitred node`.
    pub fn spawn(options: &NodeOptions) -> Self {
        Self::from_command(&options.id, options.command())
    }

    /// Starts any process that speaks in lines; `name` stands in failure messages.
    pub fn from_command(name: &str, command: Command) -> Self {
        let (process, lines) =
            Process::spawn(name, command).unwrap_or_else(|error| panic!("could not start {name}: {error}"));
        Self { process, lines }
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Writes one line of JSON to the process.
    pub fn send(&self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Writes one line as it is, for lines that are no JSON.
    pub fn send_line(&self, line: &str) {
        if !self.process.send_line(line) {
            panic!("{}", self.failure("closed its stdin"));
        }
    }

    /// Closes the stdin of the process once all that was sent is written.
    pub fn close_stdin(&mut self) {
        self.process.close_stdin();
    }

    /// The next line out, as JSON. Panics with the stderr of the process after `timeout` or at the end of its output.
    pub async fn next_line(&mut self, timeout: Duration) -> Value {
        let line = match tokio::time::timeout(timeout, self.lines.recv()).await {
            Ok(Some(line)) => line,
            Ok(None) => panic!("{}", self.failure("ended its output")),
            Err(_) => panic!("{}", self.failure(&format!("said nothing for {timeout:?}"))),
        };
        match serde_json::from_str(&line) {
            Ok(value) => value,
            Err(error) => panic!("{}", self.failure(&format!("said what is no JSON ({error}): {line}"))),
        }
    }

    /// The next line out, as it is, or `None` once the process has ended and all it wrote was read. Cancel safe.
    pub async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Reads lines until one fits, and hands it back; those before it are gone.
    pub async fn wait_for(&mut self, fits: impl Fn(&Value) -> bool, timeout: Duration) -> Value {
        let end = Instant::now() + timeout;
        let mut passed = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = match tokio::time::timeout(left, self.lines.recv()).await {
                Ok(Some(line)) => line,
                Ok(None) => panic!("{}", self.failure(&format!("ended its output; it had said {passed:#?}"))),
                Err(_) => {
                    panic!("{}", self.failure(&format!("did not say it within {timeout:?}; it had said {passed:#?}")))
                }
            };
            if let Ok(value) = serde_json::from_str::<Value>(&line)
                && fits(&value)
            {
                return value;
            }
            passed.push(line);
        }
    }

    /// Ends the process with SIGKILL and waits until it is gone.
    pub fn sigkill(&mut self) {
        self.process.kill();
    }

    /// Freezes the process.
    pub fn sigstop(&mut self) {
        signal::send(self.process.child(), Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub fn sigcont(&mut self) {
        signal::send(self.process.child(), Signal::CONT);
    }

    /// Tells the process that its config changed (SIGHUP).
    pub fn sighup(&mut self) {
        signal::send(self.process.child(), Signal::HUP);
    }

    /// Asks the process to end (SIGTERM), waits for it and hands back how it ended.
    pub fn sigterm(&mut self) -> ExitStatus {
        signal::send(self.process.child(), Signal::TERM);
        match signal::wait_for_exit(self.process.child(), STOP_LIMIT) {
            Some(status) => status,
            None => panic!("{}", self.failure(&format!("did not end within {STOP_LIMIT:?} of SIGTERM"))),
        }
    }

    /// Whether the process still runs; a frozen one does.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// What the process has written to its stderr so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    fn failure(&self, what: &str) -> String {
        let shown = self.process.stderr_tail(STDERR_SHOWN_BYTES);
        format!("{} (pid {}) {what}; its stderr:\n{shown}", self.process.name(), self.pid())
    }
}
