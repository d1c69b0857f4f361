//! Node processes: the `maitred` binary as one member of a fleet, steered by JSON lines (CLI-3).

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::mpsc;

use super::signal;

const STOP_LIMIT: Duration = Duration::from_secs(15);
const STDERR_SHOWN_BYTES: usize = 16 * 1_024;

/// What a node process is started with.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The binary; this build's unless a test has another one.
    pub program: PathBuf,
    /// `--id`
    pub id: String,
    /// `--role`: `backend` or `proxy`.
    pub role: String,
    /// `--addr`: what it tells others to send players to; nothing listens there.
    pub addr: String,
    /// `--store`
    pub store: String,
    /// `--zone`
    pub zone: String,
    /// `--config`
    pub config: Option<PathBuf>,
    /// Environment on top of the test's own, such as the secret.
    pub env: Vec<(String, String)>,
    /// Arguments after those above.
    pub args: Vec<String>,
}

impl NodeOptions {
    /// A node with an address that nobody uses, and no config.
    pub fn new(id: &str, role: &str, store: &str, zone: &str) -> Self {
        Self {
            program: PathBuf::from(env!("CARGO_BIN_EXE_maitred")),
            id: id.to_owned(),
            role: role.to_owned(),
            addr: "127.0.0.1:25565".to_owned(),
            store: store.to_owned(),
            zone: zone.to_owned(),
            config: None,
            env: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Sets an environment variable of the process.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["node", "--id", &self.id, "--role", &self.role, "--addr", &self.addr]);
        command.args(["--store", &self.store, "--zone", &self.zone]);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running node process; dropping it kills it.
#[derive(Debug)]
pub struct Node {
    name: String,
    child: Child,
    // A thread writes, so that a stopped process with a full pipe does not stop the test with it.
    input: Option<blocking::Sender<String>>,
    lines: mpsc::UnboundedReceiver<String>,
    stderr: Arc<Mutex<Vec<u8>>>,
}

impl Node {
    /// Starts `maitred node`.
    pub fn spawn(options: &NodeOptions) -> Self {
        Self::from_command(&options.id, options.command())
    }

    /// Starts any process that speaks in lines; `name` stands in failure messages.
    pub fn from_command(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("could not start {name}: {error}"));
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut errors = child.stderr.take().expect("stderr is piped");

        let (input, to_write) = blocking::channel();
        thread::spawn(move || write_lines(stdin, &to_write));
        let (line_in, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line_in.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&stderr);
        thread::spawn(move || {
            let mut chunk = [0; 4_096];
            while let Ok(read @ 1..) = errors.read(&mut chunk) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..read]);
            }
        });
        Self { name: name.to_owned(), child, input: Some(input), lines, stderr }
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes one line of JSON to the process.
    pub fn send(&self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Writes one line as it is, for lines that are no JSON.
    pub fn send_line(&self, line: &str) {
        let input = self.input.as_ref().expect("stdin was closed by the test");
        if input.send(format!("{line}\n")).is_err() {
            panic!("{}", self.failure("closed its stdin"));
        }
    }

    /// Closes the stdin of the process once all that was sent is written.
    pub fn close_stdin(&mut self) {
        self.input = None;
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
        signal::end(&mut self.child);
    }

    /// Freezes the process.
    pub fn sigstop(&mut self) {
        signal::send(&mut self.child, Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub fn sigcont(&mut self) {
        signal::send(&mut self.child, Signal::CONT);
    }

    /// Tells the process that its config changed (SIGHUP).
    pub fn sighup(&mut self) {
        signal::send(&mut self.child, Signal::HUP);
    }

    /// Asks the process to end (SIGTERM), waits for it and hands back how it ended.
    pub fn sigterm(&mut self) -> ExitStatus {
        signal::send(&mut self.child, Signal::TERM);
        match signal::wait_for_exit(&mut self.child, STOP_LIMIT) {
            Some(status) => status,
            None => panic!("{}", self.failure(&format!("did not end within {STOP_LIMIT:?} of SIGTERM"))),
        }
    }

    /// Whether the process still runs; a frozen one does.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What the process has written to its stderr so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn failure(&self, what: &str) -> String {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(STDERR_SHOWN_BYTES)..]);
        format!("{} (pid {}) {what}; its stderr:\n{shown}", self.name, self.pid())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        signal::end(&mut self.child);
    }
}

fn write_lines(mut stdin: ChildStdin, lines: &blocking::Receiver<String>) {
    while let Ok(line) = lines.recv() {
        if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}
