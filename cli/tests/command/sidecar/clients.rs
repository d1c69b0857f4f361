//! `--listen`: the same lines over TCP, a connection a client.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::{Fleet, LIMIT, ask, sees};
use maitred_testkit::wait::eventually;

struct Client {
    lines: BufReader<OwnedReadHalf>,
    out: OwnedWriteHalf,
}

impl Client {
    async fn connect(ready: &Value) -> Self {
        let stream = TcpStream::connect(ready["listen"].as_str().expect("an address")).await.expect("a connection");
        let (read, out) = stream.into_split();
        Self { lines: BufReader::new(read), out }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.out.write_all(bytes).await.expect("a write");
    }

    async fn say(&mut self, line: Value) {
        self.send(format!("{line}\n").as_bytes()).await;
    }

    async fn next(&mut self) -> Value {
        let mut line = String::new();
        timeout(LIMIT, self.lines.read_line(&mut line)).await.expect("a line in time").expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The next answer; events before it are passed over.
    async fn answer(&mut self) -> Value {
        loop {
            let line = self.next().await;
            if line.get("outcome").is_some() {
                return line;
            }
        }
    }
}

#[tokio::test]
async fn cli_3_two_clients_each_get_their_own_answers_and_everybody_the_events() {
    let fleet = Fleet::new();
    let (mut backend, backend_ready) = fleet.node("b1", "backend").await;
    let (mut proxy, proxy_ready) = fleet.node("p1", "proxy").await;
    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 50})).await;
    sees(&mut proxy, "warm").await;
    backend.wait_for(|line| line["event"] == "place_promised", LIMIT).await;

    let (mut one, mut two) = (Client::connect(&proxy_ready).await, Client::connect(&proxy_ready).await);
    let mut watcher = Client::connect(&backend_ready).await;
    watcher.say(json!({"op": "status", "id": "here"})).await;
    assert_eq!(watcher.answer().await["id"], "here");
    // The same id on both: an id belongs to its connection.
    one.say(json!({"op": "dispatch", "id": "r1", "player": "alice"})).await;
    two.say(json!({"op": "dispatch", "id": "r1", "player": "bob"})).await;
    let (first, second) = tokio::join!(one.answer(), two.answer());
    assert_eq!((&first["player"], &first["outcome"]), (&json!("alice"), &json!("transfer")));
    assert_eq!((&second["player"], &second["outcome"]), (&json!("bob"), &json!("transfer")));
    for _ in 0..2 {
        let told = backend.next_line(LIMIT).await;
        let also = watcher.next().await;
        assert_eq!((&told["event"], &told), (&json!("place_promised"), &also));
    }
    // Neither the other client nor stdout heard an answer that was not theirs.
    for client in [&mut one, &mut two] {
        client.say(json!({"op": "status", "id": "last"})).await;
        assert_eq!(client.next().await["id"], "last");
    }
    proxy.send(&json!({"op": "status", "id": "last"}));
    assert_eq!(proxy.next_line(LIMIT).await["id"], "last");
}

#[tokio::test]
async fn cli_3_bytes_that_are_no_text_are_answered_and_the_lines_behind_them_too() {
    let fleet = Fleet::new();
    let (_backend, ready) = fleet.node("b1", "backend").await;
    let mut client = Client::connect(&ready).await;
    // In one write: whatever follows a bad line is in the buffer already.
    let mut bytes = b"\xff\xfe\x00{\n".to_vec();
    bytes.extend(b"{\"op\":\"status\",\"id\":\"s1\"}\n");
    bytes.extend("y".repeat(200_000).as_bytes());
    bytes.extend(b"\n\n{\"op\":\"status\",\"id\":\"s2\"}\n");
    client.send(&bytes).await;
    let answers = [client.next().await, client.next().await, client.next().await, client.next().await];
    assert!(answers[0]["error"].as_str().is_some_and(|error| error.contains("UTF-8")), "{answers:?}");
    assert_eq!(answers[1]["id"], "s1");
    assert!(answers[2]["error"].as_str().is_some_and(|error| error.contains("longer than")), "{answers:?}");
    assert_eq!((&answers[3]["id"], &answers[3]["outcome"]), (&json!("s2"), &json!("ok")));
}

// Otherwise a health check that connects every second uses up the process's files.
#[tokio::test]
async fn cli_3_a_client_that_has_said_its_last_line_gets_its_answers_and_is_let_go() {
    let fleet = Fleet::new();
    let (backend, ready) = fleet.node("b1", "backend").await;
    let files = || std::fs::read_dir(format!("/proc/{}/fd", backend.pid())).expect("/proc").count();
    let before = files();
    for n in 0..20 {
        let mut client = Client::connect(&ready).await;
        client.say(json!({"op": "status", "id": n.to_string()})).await;
        client.out.shutdown().await.expect("half closed");
        assert_eq!(client.next().await["id"], n.to_string());
        let mut rest = Vec::new();
        timeout(LIMIT, client.lines.read_to_end(&mut rest)).await.expect("the connection is closed").expect("a read");
        assert!(rest.is_empty());
    }
    eventually("the sockets are closed", LIMIT, async || files() <= before + 1).await;
}
