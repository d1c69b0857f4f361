//! What is not believed: replays, old epochs, forgeries, and records of other builds.

use futures_util::StreamExt;
use maitred::envelope::{AuditReason, Keyring, Kind, SCHEMA_VERSION_TEXT, Secret};
use maitred::error::Error;
use maitred::ids::{Epoch, NodeId};
use maitred::message::{Message, Reply, ServiceRegistration};
use redis::aio::MultiplexedConnection;
use serde_json::value::RawValue;

use crate::fixtures::member::{CALL, Gate, Member, Options, PATIENCE, echo, id, json, keyring, pair, zone};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// Everything that is published on a channel.
struct Tap {
    messages: redis::aio::PubSub,
}

impl Tap {
    async fn on(store: &TestStore, channel: &str) -> Self {
        let client = redis::Client::open(store.url()).expect("a URL");
        let mut messages = client.get_async_pubsub().await.expect("a connection");
        messages.subscribe(channel).await.expect("a subscription");
        Self { messages }
    }

    async fn next(&mut self) -> Vec<u8> {
        let mut stream = self.messages.on_message();
        let message = tokio::time::timeout(PATIENCE, stream.next()).await.expect("a message in time");
        message.expect("a message").get_payload_bytes().to_vec()
    }
}

async fn publish(conn: &mut MultiplexedConnection, channel: &str, bytes: &[u8]) {
    let heard: u64 = redis::cmd("PUBLISH").arg(channel).arg(bytes).query_async(conn).await.expect("PUBLISH");
    assert!(heard > 0, "nobody listens on {channel}");
}

/// Two members, a counted service `work` at the second one, and a raw client.
struct ForgeryFixture {
    store: TestStore,
    a: Member,
    b: Member,
    gate: Gate,
    raw: MultiplexedConnection,
    channel: String,
    _services: Vec<ServiceRegistration>,
}

impl ForgeryFixture {
    async fn set() -> Self {
        let store = TestStore::start();
        let (a, b, echo) = pair(&store.url()).await;
        let gate = Gate::new(usize::MAX >> 4);
        let work = b.services.register("work", gate.handler()).expect("a name");
        b.beat_now().await;
        a.sees(&b).await;
        let raw = store.conn().await;
        let channel = b.store.keys().inbox(&b.id).to_string();
        Self { store, a, b, gate, raw, channel, _services: vec![work, echo] }
    }

    async fn inject(&mut self, bytes: &[u8]) {
        publish(&mut self.raw, &self.channel, bytes).await;
    }

    /// Waits until `b` has dropped `count` for `reason`, and proves that it goes on working and ran nothing for them.
    async fn dropped(&self, reason: AuditReason, count: u64) {
        eventually("it is dropped and audited", PATIENCE, async || self.b.audited(reason) >= count).await;
        let started = self.gate.started();
        self.a.post.call("b:echo", "say", &1, CALL).await.expect("the rest goes on working");
        assert_eq!((self.b.audited(reason), self.gate.started()), (count, started));
    }

    /// A message of `a` to the service `work` of `b`, good in every way.
    fn message<'a>(&self, nonce: &'a str, body: &'a RawValue) -> Message<'a> {
        let now = self.b.store.clock().now_ms();
        Message {
            origin: self.a.id.clone(),
            origin_epoch: self.a.epoch(),
            from: self.a.id.clone(),
            from_epoch: self.a.epoch(),
            to: self.b.id.clone(),
            to_epoch: self.b.epoch(),
            service: "work",
            method: "go",
            call: "",
            hops: 0,
            route: "",
            sent_at_ms: now,
            nonce,
            deadline_ms: now + 20_000,
            body,
        }
    }
}

fn from(message: &mut Message<'_>, node: NodeId, epoch: Epoch) {
    (message.origin, message.origin_epoch) = (node.clone(), epoch);
    (message.from, message.from_epoch) = (node, epoch);
}

// ENV-7: whoever records the channel can publish a good message again; it must not reserve a second place.
#[tokio::test(flavor = "multi_thread")]
async fn env_7_a_replayed_message_is_not_handled_twice() {
    let mut fixture = ForgeryFixture::set().await;
    let mut tap = Tap::on(&fixture.store, &fixture.channel).await;
    let answer: u64 = fixture.a.post.call_json("b:work", "go", &7, CALL).await.expect("an answer");
    assert_eq!(answer, 7);
    let recorded = tap.next().await;
    for _ in 0..3 {
        fixture.inject(&recorded).await;
    }
    fixture.dropped(AuditReason::Replay, 3).await;
    assert_eq!(fixture.gate.started(), 1);

    // The answer, heard again, finds nobody.
    let mut tap = Tap::on(&fixture.store, &fixture.a.store.keys().inbox(&fixture.a.id).to_string()).await;
    fixture.a.post.call("b:work", "go", &8, CALL).await.expect("an answer");
    let recorded = tap.next().await;
    let channel = fixture.a.store.keys().inbox(&fixture.a.id).to_string();
    publish(&mut fixture.raw, &channel, &recorded).await;
    eventually("the second answer is late", PATIENCE, async || fixture.a.post.counts().late == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn env_7_a_message_outside_of_the_window_is_refused() {
    let mut fixture = ForgeryFixture::set().await;
    let body = json("1");
    for (nonce, shift) in [("old", -31_000), ("new", 32_000)] {
        let mut message = fixture.message(nonce, &body);
        message.sent_at_ms = message.sent_at_ms.saturating_add_signed(shift);
        message.deadline_ms = message.sent_at_ms + 20_000;
        fixture.inject(&message.to_wire(&keyring())).await;
    }
    fixture.dropped(AuditReason::Stale, 2).await;
    assert_eq!(fixture.gate.started(), 0);
    // The same message in its time is taken, so it was the time.
    let bytes = fixture.message("now", &body).to_wire(&keyring());
    fixture.inject(&bytes).await;
    fixture.gate.has_started(1).await;
}

// MSG-4: a proxy that was paused past its lease wakes up and sends, believing in its lease. Its successor acts already.
#[tokio::test(flavor = "multi_thread")]
async fn msg_4_a_sender_whose_epoch_is_over_is_not_believed() {
    let mut fixture = ForgeryFixture::set().await;
    fixture.a.stop_beating().await;
    let replaces = Some(fixture.a.incarnation().await);
    let next = Member::join_with(&fixture.store.url(), "a", Options { replaces, ..Options::default() }).await;
    assert!(next.epoch() > fixture.a.epoch() && fixture.a.lease.is_valid(), "both believe that they are the one");
    next.post.send("b:work", "go", &1).await.expect("sent");
    fixture.gate.has_started(1).await;
    let error = fixture.a.post.call("b:work", "go", &2, std::time::Duration::from_millis(700)).await;
    let error = error.expect_err("its epoch is over");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    fixture.a.post.send("b:work", "go", &3).await.expect("somebody listened");
    eventually("both are dropped", PATIENCE, async || fixture.b.audited(AuditReason::OldEpoch) == 2).await;
    next.post.call("b:echo", "say", &4, CALL).await.expect("the successor is believed");
    assert_eq!(fixture.gate.started(), 1);
}

// MSG-4: what was meant for an incarnation that is gone must not reach the next one: it knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn msg_4_a_message_to_an_epoch_that_is_over_is_not_taken() {
    let mut fixture = ForgeryFixture::set().await;
    let body = json("1");
    let mut message = fixture.message("n1", &body);
    message.to_epoch = Epoch(message.to_epoch.0 - 1);
    fixture.inject(&message.to_wire(&keyring())).await;
    fixture.dropped(AuditReason::OldEpoch, 1).await;
    let mut message = fixture.message("n2", &body);
    message.to = id("c");
    fixture.inject(&message.to_wire(&keyring())).await;
    fixture.dropped(AuditReason::WrongKey, 1).await;
    assert_eq!(fixture.gate.started(), 0);
}

// MSG-4, R-10: an unknown sender costs one read of its row, which decides.
#[tokio::test(flavor = "multi_thread")]
async fn msg_4_an_unknown_sender_is_looked_up_once() {
    let mut fixture = ForgeryFixture::set().await;
    let body = json("1");
    let mut message = fixture.message("n1", &body);
    from(&mut message, id("stranger"), Epoch(1));
    fixture.inject(&message.to_wire(&keyring())).await;
    fixture.dropped(AuditReason::UnknownSender, 1).await;

    // A member that the receiver has not seen yet is believed at its first message.
    let blind = Member::join_with(&fixture.store.url(), "c", Options { refreshing: false, ..Options::default() }).await;
    let late = Member::join(&fixture.store.url(), "d").await;
    let _echo = blind.services.register("echo", echo()).expect("a name");
    blind.beat_now().await;
    assert!(blind.directory.view_of(&late.id).is_none());
    let answer: u64 = late.post.call_json("c:echo", "say", &7, CALL).await.expect("an answer");
    assert_eq!(answer, 7);
    assert!(blind.directory.view_of(&late.id).is_some());
}

// ENV-5: with the store's password alone nobody can make a member act.
#[tokio::test(flavor = "multi_thread")]
async fn env_5_forged_messages_are_dropped_by_reason() {
    let mut fixture = ForgeryFixture::set().await;
    let body = json("111");
    let good = fixture.message("n1", &body).to_wire(&keyring());
    let text = String::from_utf8(good.clone()).expect("text");
    let changed = text.replace("3:111,", "3:999,");
    assert_ne!(changed, text);
    fixture.inject(changed.as_bytes()).await;
    fixture.dropped(AuditReason::BadSignature, 1).await;

    let secret =
        Secret::from_base64("MAITRED_SECRET", "//////////////////////////////////////////8=").expect("32 bytes");
    let stranger = Keyring::new(zone(), secret, Vec::new());
    let bytes = fixture.message("n2", &body).to_wire(&stranger);
    fixture.inject(&bytes).await;
    fixture.dropped(AuditReason::UnknownKey, 1).await;

    fixture.inject(&good[..good.len() - 56]).await;
    fixture.dropped(AuditReason::MissingSignature, 1).await;
    for junk in [b"".as_slice(), b"hello", b"{\"method\":\"go\"}"] {
        fixture.inject(junk).await;
    }
    eventually("junk is counted", PATIENCE, async || fixture.b.audited(AuditReason::Malformed) == 2).await;
    assert_eq!(fixture.gate.started(), 0);
    // The good one is still good: nothing that was forged used its nonce up.
    fixture.inject(&good).await;
    fixture.gate.has_started(1).await;
}

// ENV-6: during an upgrade the older half names the version and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn env_6_a_message_of_a_later_version_is_refused_with_its_own_reason() {
    let mut fixture = ForgeryFixture::set().await;
    let bytes = fixture.message("n1", &json("1")).to_wire(&keyring());
    let wire = keyring().from_wire(&bytes, bytes.len()).expect("signed");
    let mut fields = wire.fields.clone();
    assert_eq!(fields.pop(), Some(SCHEMA_VERSION_TEXT));
    fields.push("2");
    fixture.inject(&keyring().to_wire(Kind::Message, &fields)).await;
    fixture.dropped(AuditReason::SchemaVersion, 1).await;
    assert_eq!(fixture.gate.started(), 0);
}

// A signature of one kind is worth nothing for another: a heartbeat in an inbox is no message.
#[tokio::test(flavor = "multi_thread")]
async fn msg_4_a_signed_record_that_is_no_message_is_dropped() {
    let mut fixture = ForgeryFixture::set().await;
    let claim = keyring().to_wire(Kind::Claim, &["t-1", "alice", "a", "1", "op-1"]);
    fixture.inject(&claim).await;
    fixture.dropped(AuditReason::Malformed, 1).await;
    let body = json("1");
    let mut message = fixture.message("n1", &body);
    message.deadline_ms = message.sent_at_ms + 30_000;
    fixture.inject(&message.to_wire(&keyring())).await;
    fixture.dropped(AuditReason::Malformed, 2).await;
}

// an answer counts only from the node and epoch that were asked, to the epoch that asked.
#[tokio::test(flavor = "multi_thread")]
async fn r_27_an_answer_from_another_node_or_epoch_does_not_count() {
    let mut fixture = ForgeryFixture::set().await;
    let gate = Gate::new(0);
    let _slow = fixture.b.services.register("slow", gate.handler()).expect("a name");
    fixture.b.beat_now().await;
    fixture.a.sees(&fixture.b).await;
    let mut tap = Tap::on(&fixture.store, &fixture.channel).await;
    let post = fixture.a.post.clone();
    let calling = tokio::spawn(async move { post.call_json::<String, _>("b:slow", "go", "real", CALL).await });
    let asked = tap.next().await;
    let wire = keyring().from_wire(&asked, asked.len()).expect("signed");
    let call = Message::from_fields(&wire.fields).expect("a message").call;
    let channel = fixture.a.store.keys().inbox(&fixture.a.id).to_string();
    let (forged, now) = (json("\"forged\""), fixture.a.store.clock().now_ms());
    let (a, b) = ((fixture.a.id.clone(), fixture.a.epoch()), (fixture.b.id.clone(), fixture.b.epoch()));
    for (from, to, sent_at_ms) in [
        ((id("c"), b.1), a.clone(), now),
        ((b.0.clone(), Epoch(b.1.0 - 1)), a.clone(), now),
        (b.clone(), (a.0.clone(), Epoch(a.1.0 - 1)), now),
        (b.clone(), (id("c"), a.1), now),
        (b.clone(), a.clone(), now - 40_000),
    ] {
        let reply = Reply {
            call,
            from: from.0,
            from_epoch: from.1,
            to: to.0,
            to_epoch: to.1,
            status: "ok",
            sent_at_ms,
            nonce: "n1",
            body: &forged,
        };
        publish(&mut fixture.raw, &channel, &reply.to_wire(&keyring())).await;
    }
    eventually("all are dropped", PATIENCE, async || fixture.a.post.counts().dropped == 5).await;
    let audited = [AuditReason::UnknownSender, AuditReason::OldEpoch, AuditReason::WrongKey, AuditReason::Stale];
    assert_eq!(audited.map(|reason| fixture.a.audited(reason)), [1, 2, 1, 1]);
    gate.let_go(1);
    assert_eq!(calling.await.expect("no panic").expect("the real answer"), "real");
}
