//! The example as a process, on the bare wire: what reaches a backend, and what a client gets back.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use super::edge::{Edge, LIMIT};
use super::packets::{frame, handshake, login, tails};
use crate::fixtures::listener::Blackhole;
use maitred_testkit::wait::eventually;

/// A proxy whose store is not there, with one static backend.
struct EdgeFixture {
    edge: Edge,
    backend: TcpListener,
    _nobody: TcpSocket,
    _dir: TempDir,
}

impl EdgeFixture {
    async fn new(servers: &str) -> Self {
        Self::with(servers, &[]).await
    }

    /// With more static backends, `NAME=HOST:PORT`.
    async fn with(servers: &str, more: &[String]) -> Self {
        Self::with_args(servers, more.iter().flat_map(|entry| ["--static".to_owned(), entry.clone()]).collect()).await
    }

    async fn with_args(servers: &str, mut args: Vec<String>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config: PathBuf = dir.path().join("network.yml");
        let text = format!(
            "initialRouting: {{ servers: {servers}, timeoutSeconds: 20 }}\n\
             texts: {{ noEntry: 'No door \"here\".', notPlaced: Nobody is in. }}\n"
        );
        std::fs::write(&config, text).expect("a config");
        let nobody = TcpSocket::new_v4().expect("a socket");
        nobody.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let store = format!("redis://{}", nobody.local_addr().expect("an address"));
        let backend = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        args.extend(["--static".to_owned(), format!("lobby={}", backend.local_addr().expect("an address"))]);
        let edge = Edge::start("edge-1", &store, &config, &args).await;
        Self { edge, backend, _nobody: nobody, _dir: dir }
    }

    async fn client(&self, bytes: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.edge.addr).await.expect("the proxy listens");
        client.write_all(bytes).await.expect("written");
        client
    }

    /// All that a client gets until the proxy ends the connection.
    async fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut client = self.client(bytes).await;
        let mut answer = Vec::new();
        let reading = timeout(LIMIT, client.read_to_end(&mut answer)).await.expect("the proxy ends the connection");
        // A reset is an end, too.
        let _ = reading;
        answer
    }
}

async fn exactly(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    timeout(LIMIT, stream.read_exact(&mut read)).await.expect("in time").expect("so many bytes");
    read
}

// PLC-4, PLC-6: without the store, and not a byte more or less than the client sent.
#[tokio::test]
async fn plc_6_a_backend_gets_exactly_what_the_client_sent() {
    let fixture = EdgeFixture::new("[not-there, lobby]").await;
    for tail in tails() {
        let sent = [handshake(767, "play.example", 2), login("alice", &tail)].concat();
        let (begin, rest) = sent.split_at(sent.len() / 2);
        let mut client = fixture.client(begin).await;
        client.write_all(rest).await.expect("written");
        let (mut backend, _) = timeout(LIMIT, fixture.backend.accept()).await.expect("in time").expect("a connection");
        assert_eq!(exactly(&mut backend, sent.len()).await, sent);
        backend.write_all(b"welcome").await.expect("written");
        assert_eq!(exactly(&mut client, 7).await, b"welcome");
        client.write_all(b"thanks").await.expect("written");
        assert_eq!(exactly(&mut backend, 6).await, b"thanks", "nothing in between");
        drop(client);
        assert_eq!(timeout(LIMIT, backend.read(&mut [0])).await.expect("in time").expect("an end"), 0);
    }
}

// PLC-7: a client that hangs up while its backend does not answer leaves no socket behind, and nobody gets its bytes.
#[tokio::test]
async fn plc_7_a_client_that_hangs_up_ends_its_placement() {
    let hole = Blackhole::start().await;
    if hole.connecting().is_none() {
        return eprintln!("skipped: this system does not list its sockets");
    }
    let fixture = EdgeFixture::with("[hole, lobby]", &[format!("hole={}", hole.addr)]).await;
    let client = fixture.client(&[handshake(47, "h", 2), login("alice", &[])].concat()).await;
    eventually("the proxy connects", LIMIT, async || hole.connecting() == Some(1)).await;
    drop(client);
    eventually("the socket is closed", Duration::from_secs(5), async || hole.connecting() == Some(0)).await;
    assert!(
        timeout(Duration::from_millis(1), fixture.backend.accept()).await.is_err(),
        "the next one was connected to"
    );
}

// PLC-2: the client reads why, as a text component with the configured words.
#[tokio::test]
async fn plc_2_a_refused_client_reads_the_configured_text() {
    let hello = [handshake(47, "h", 2), login("alice", &[])].concat();
    for (servers, text) in [("[]", "{\"text\":\"No door \\\"here\\\".\"}"), ("[other]", "{\"text\":\"Nobody is in.\"}")]
    {
        let fixture = EdgeFixture::new(servers).await;
        let length = u8::try_from(text.len()).expect("short");
        assert_eq!(fixture.answer(&hello).await, frame(&[&[0, length], text.as_bytes()].concat()));
    }
}

// REL-3: refused on the wire as well, each without a word and without a connection to a backend.
#[tokio::test]
async fn rel_3_what_is_no_client_is_hung_up_on() {
    let fixture = EdgeFixture::new("[lobby]").await;
    let early = [handshake(47, "h", 2), login("12345678901234567", &[])].concat();
    for bytes in [&b"\0"[..], b"\xff\xff\xff\xff", b"\x05\x01\x02\x03\x04\x05", &handshake(47, "h", 9), &early] {
        assert_eq!(fixture.answer(bytes).await, b"", "{bytes:?}");
    }
    let looked = timeout(Duration::from_millis(1), fixture.backend.accept()).await;
    assert!(looked.is_err(), "a backend was connected to");
}

// NOD-14: the server list shows the fleet; nobody is known here. Old clients get an answer, too.
#[tokio::test]
async fn plc_4_a_ping_is_answered_and_reaches_no_backend() {
    let fixture = EdgeFixture::new("[lobby]").await;
    let ping = frame(&[&[1], 0x0123_4567_89ab_cdef_u64.to_be_bytes().as_slice()].concat());
    let answer = fixture.answer(&[handshake(767, "h", 1), frame(&[0]), ping.clone()].concat()).await;
    let line = answer.strip_suffix(ping.as_slice()).expect("the ping comes back as it was");
    let start = line.iter().position(|byte| *byte == b'{').expect("JSON");
    let line: serde_json::Value = serde_json::from_slice(&line[start..]).expect("JSON");
    assert_eq!(line["players"], serde_json::json!({ "online": 0, "max": 0 }), "{line}");
    assert_eq!((&line["version"]["protocol"], &line["description"]["text"]), (&767.into(), &"Good evening".into()));

    let old = |text: &str| {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let count = u16::try_from(units.len() / 2).expect("short");
        [&[0xff], count.to_be_bytes().as_slice(), &units].concat()
    };
    assert_eq!(
        fixture.answer(b"\xfe\x01").await,
        old(&["\u{a7}1", "127", "maitred", "Good evening", "0", "0"].join("\0"))
    );
    assert_eq!(fixture.answer(b"\xfe").await, old("Good evening\u{a7}0\u{a7}0"));
    assert!(timeout(Duration::from_millis(1), fixture.backend.accept()).await.is_err(), "a backend was connected to");
}

// REL-3: one address must not take all the room; what it held comes back.
#[tokio::test]
async fn rel_3_one_address_has_only_so_many_connections() {
    let fixture = EdgeFixture::with_args("[lobby]", vec!["--per-address".to_owned(), "2".to_owned()]).await;
    let (first, _second) = (fixture.client(b"").await, fixture.client(b"").await);
    let mut third = fixture.client(b"").await;
    let read = timeout(LIMIT, third.read(&mut [0])).await.expect("the proxy ends the connection");
    assert!(!matches!(read, Ok(1..)), "without a word");
    drop(first);
    let hello = [handshake(767, "h", 1), frame(&[0])].concat();
    eventually("there is room again", LIMIT, async || {
        let mut client = TcpStream::connect(fixture.edge.addr).await.expect("the proxy listens");
        let sent = client.write_all(&hello).await;
        sent.is_ok() && matches!(timeout(LIMIT, client.read(&mut [0])).await, Ok(Ok(1..)))
    })
    .await;
}

// PLC-7, PLC-2: without this a restart of the proxy shows players a broken connection instead of the operator's words.
#[tokio::test]
async fn plc_7_a_proxy_that_is_told_to_stop_tells_those_who_wait() {
    let hole = Blackhole::start().await;
    if hole.connecting().is_none() {
        return eprintln!("skipped: this system does not list its sockets");
    }
    let hello = [handshake(47, "h", 2), login("alice", &[])].concat();
    let mut fixture = EdgeFixture::with("[hole, lobby]", &[format!("hole={}", hole.addr)]).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(fixture.client(&hello).await);
    }
    let mut silent = fixture.client(b"").await;
    eventually("the proxy connects", LIMIT, async || hole.connecting() >= Some(20)).await;
    assert!(fixture.edge.node.sigterm().success());
    let text = b"{\"text\":\"Nobody is in.\"}";
    for mut client in clients {
        let mut answer = Vec::new();
        timeout(LIMIT, client.read_to_end(&mut answer)).await.expect("in time").expect("an end, not a reset");
        assert!(answer.ends_with(text), "{:?}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(timeout(LIMIT, silent.read(&mut [0])).await.expect("in time").expect("an end"), 0);
}

// PLC-7: those who play do not keep the process.
#[tokio::test]
async fn plc_7_a_proxy_that_is_told_to_stop_ends_the_connections_of_players() {
    let mut fixture = EdgeFixture::new("[lobby]").await;
    let hello = [handshake(47, "h", 2), login("alice", &[])].concat();
    let mut client = fixture.client(&hello).await;
    let (mut backend, _) = timeout(LIMIT, fixture.backend.accept()).await.expect("in time").expect("a connection");
    assert_eq!(exactly(&mut backend, hello.len()).await, hello);
    assert!(fixture.edge.node.sigterm().success());
    for side in [&mut client, &mut backend] {
        assert_eq!(timeout(LIMIT, side.read(&mut [0])).await.expect("in time").expect("an end, not a reset"), 0);
    }
}
