use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::{Decoder, FramedRead, LinesCodec, LinesCodecError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Duty;
use super::line::Line;

/// Longest line of a client, in bytes.
const LINE_MAX_BYTES: usize = 65_536;
/// Lines that may wait for a slow client before its own answers wait; events to it are dropped then.
const OUTPUT_BUFFER: usize = 4_096;
/// Lines of one client that are worked on at the same time; more of them wait unread.
const CONCURRENT_MAX: usize = 4_096;
/// Clients over TCP at the same time.
const CLIENTS_MAX: usize = 256;
/// Longest time that one event waits for a client that does not read.
const DELIVER_MAX: Duration = Duration::from_secs(5);
/// Longest time that last lines may take to be written.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Where lines go out: stdout and every client.
#[derive(Debug, Clone, Default)]
pub(super) struct Outputs {
    all: Arc<Mutex<Vec<mpsc::Sender<String>>>>,
}

impl Outputs {
    /// Adds an output; it is written to by a task of `tasks` until it breaks or everybody is done with it.
    pub fn add(&self, writer: impl AsyncWrite + Send + Unpin + 'static, tasks: &TaskTracker) -> mpsc::Sender<String> {
        let (sender, receiver) = mpsc::channel(OUTPUT_BUFFER);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|output| !output.is_closed());
        all.push(sender.clone());
        tasks.spawn(write(writer, receiver));
        sender
    }

    /// Tells everybody. A client that does not read misses events rather than holding the others up.
    pub fn tell(&self, event: &Value) {
        let text = event.to_string();
        for output in self.all.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if output.try_send(text.clone()).is_err() {
                tracing::debug!("a client missed an event");
            }
        }
    }

    /// Tells everybody what somebody waits for: a client that is slow is waited for, up to [`DELIVER_MAX`].
    pub async fn deliver(&self, event: &Value) {
        let text = event.to_string();
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let one = async |output: mpsc::Sender<String>| {
            if !matches!(timeout(DELIVER_MAX, output.send(text.clone())).await, Ok(Ok(()))) {
                tracing::debug!("a client missed an event");
            }
        };
        join_all(all.into_iter().map(one)).await;
    }

    /// Takes an output away; what waits in it is still written.
    fn remove(&self, output: &mpsc::Sender<String>) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !other.same_channel(output));
    }

    fn close(&self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // Whatever else waits goes out in the same write.
        while let Ok(more) = lines.try_recv() {
            line.push_str(&more);
            line.push('\n');
        }
        if writer.write_all(line.as_bytes()).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// The clients of the node.
pub(super) struct Sessions {
    pub duty: Arc<Duty>,
    pub outputs: Outputs,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl Sessions {
    /// Reads a client's lines until they end; answers go to `output`.
    pub fn read(&self, reader: impl AsyncRead + Send + Unpin + 'static, output: mpsc::Sender<String>) {
        let (duty, stop) = (Arc::clone(&self.duty), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = serve(duty, reader, output) => {}
            }
        });
    }

    /// Serves clients over TCP.
    pub fn listen(&self, listener: TcpListener) {
        let (duty, outputs, stop) = (Arc::clone(&self.duty), self.outputs.clone(), self.stop.clone());
        let tasks = self.tasks.clone();
        let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
        self.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let (stream, peer) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a client");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                let Ok(client) = Arc::clone(&clients).try_acquire_owned() else {
                    tracing::warn!(%peer, "too many clients");
                    continue;
                };
                let (reader, writer) = stream.into_split();
                let output = outputs.add(writer, &tasks);
                let (duty, outputs, stop) = (Arc::clone(&duty), outputs.clone(), stop.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        // A client that has said its last line gets its answers, and then its connection is closed.
                        () = serve(duty, reader, output.clone()) => outputs.remove(&output),
                    }
                    drop(client);
                });
            }
        });
    }

    /// Writes what is left and ends.
    pub async fn end(&self) {
        self.outputs.close();
        self.tasks.close();
        if timeout(FLUSH_MAX, self.tasks.wait()).await.is_err() {
            tracing::debug!("a client did not read its last lines");
        }
    }
}

/// A client's lines, each with what is wrong with it where it cannot be read: the lines after it are read all the same.
struct Lines(LinesCodec);

impl Lines {
    fn item(decoded: Result<Option<String>, LinesCodecError>) -> std::io::Result<Option<Result<String, String>>> {
        match decoded {
            Ok(text) => Ok(text.map(Ok)),
            Err(LinesCodecError::MaxLineLengthExceeded) => {
                Ok(Some(Err(format!("the line is longer than {LINE_MAX_BYTES} bytes"))))
            }
            Err(LinesCodecError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                Ok(Some(Err("the line is not UTF-8".to_owned())))
            }
            Err(LinesCodecError::Io(error)) => Err(error),
        }
    }
}

impl Decoder for Lines {
    type Item = Result<String, String>;
    type Error = std::io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> std::io::Result<Option<Self::Item>> {
        Self::item(self.0.decode(bytes))
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> std::io::Result<Option<Self::Item>> {
        Self::item(self.0.decode_eof(bytes))
    }
}

async fn serve(duty: Arc<Duty>, reader: impl AsyncRead + Unpin, output: mpsc::Sender<String>) {
    let mut lines = FramedRead::new(reader, Lines(LinesCodec::new_with_max_length(LINE_MAX_BYTES)));
    let room = Arc::new(Semaphore::new(CONCURRENT_MAX));
    let tasks = TaskTracker::new();
    while let Some(line) = lines.next().await {
        let text = match line {
            Ok(Ok(text)) => text,
            Ok(Err(problem)) => {
                say(&output, &json!({ "id": null, "outcome": "error", "error": problem })).await;
                continue;
            }
            Err(error) => {
                tracing::debug!(%error, "a client's lines ended");
                break;
            }
        };
        if text.trim().is_empty() {
            continue;
        }
        let line = match Line::read(&text) {
            Ok(line) => line,
            Err(answer) => {
                say(&output, &answer).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { break };
        let duty = Arc::clone(&duty);
        let id = line.id().map(str::to_owned);
        let mut answering = Box::pin(answered(id, async move { duty.answer(line).await }));
        // Lines take their first step in their order, so that a cancel finds the dispatch of the line before it.
        if let Some(answer) = (&mut answering).now_or_never() {
            say(&output, &answer).await;
            continue;
        }
        let output = output.clone();
        tasks.spawn(async move {
            let answer = answering.await;
            say(&output, &answer).await;
            drop(place);
        });
    }
    tasks.close();
    tasks.wait().await;
}

/// What `answering` answers, or an error line where it panics: a client waits for every line's answer.
async fn answered(id: Option<String>, answering: impl Future<Output = Value>) -> Value {
    AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(?id, "a line could not be answered: a defect of this program");
        let problem = "a defect of this program; what the line did is not known";
        json!({ "id": id, "outcome": "error", "error": problem, "retryable": false })
    })
}

async fn say(output: &mpsc::Sender<String>, answer: &Value) {
    if output.send(answer.to_string()).await.is_err() {
        tracing::debug!("a client went away before its answer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Without an answer the client waits for good.
    #[tokio::test]
    async fn cli_3_a_line_whose_answer_panics_is_answered() {
        let answer = answered(Some("r1".to_owned()), async { panic!("a defect") }).await;
        assert_eq!((&answer["id"], &answer["outcome"]), (&json!("r1"), &json!("error")));
        let answer = answered(None, async { json!({ "outcome": "ok" }) }).await;
        assert_eq!(answer, json!({ "outcome": "ok" }));
    }
}
