//! What a call of the library says.

use std::time::{Duration, Instant};

use maitred::Error;
use maitred::error::StoreRefusal;
use maitred::ids::{NodeEpoch, NodeId, Player, RequestId, TokenId, Zone};
use maitred::node::{Control, roster};
use maitred::store::{Store, StoreOptions, StoreUrl, boot_ms};
use maitred::token::{Book, BookOptions, IssueOrder, ReapOptions, reap};
use serde_json::value::RawValue;

use super::states::{State, Trouble};
use maitred_testkit::store::TestStore;

fn order(store: &Store) -> IssueOrder {
    let now = store.clock().now_ms();
    IssueOrder {
        id: TokenId::fresh(),
        player: Player::new("bob").expect("valid"),
        request: RequestId::fresh(),
        attempt: 1,
        payload: RawValue::NULL.to_owned(),
        deadline_ms: now + 5_000,
        earlier: Vec::new(),
        issued_at_ms: now,
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(what: &str, outcome: Result<T, Error>, want: StoreRefusal, retryable: bool) {
    match outcome {
        Err(error @ Error::Refused { .. }) => {
            let Error::Refused { refusal, detail, .. } = &error else { unreachable!() };
            assert_eq!(*refusal, want, "{what}: {detail}");
            assert_eq!(error.is_retryable(), retryable, "{what}: {error}");
            assert!(!error.may_have_changed(), "{what}: a refused command changed nothing");
            assert!(error.to_string().contains(want.advice()), "{what}: {error} says not what to do");
            assert!(!detail.contains("pw") && !error.to_string().contains('\n'), "{what}: {error}");
        }
        other => panic!("{what}: {other:?} is not the refusal {want:?}"),
    }
}

// REL-4: whoever writes gets the store's reason and what to do, not a timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rel_4_each_refusal_of_a_write_is_typed() {
    for state in State::ALL {
        let trouble = Trouble::new(state).await;
        let store = trouble.store();
        let now = boot_ms();
        store.clock().observe(trouble.fixture.store.clock().now_ms(), now, now);
        let book =
            Book::new(store.clone(), trouble.fixture.verifier.clone(), Control::default(), BookOptions::default());
        let began = Instant::now();
        let (what, want, passes) = (format!("{state:?}"), state.refusal(), state.passes());
        match state {
            // An issue publishes nothing; the reopened or ended token does.
            State::NoChannels => {
                refused(&what, reap(&book, None, ReapOptions::default()).await, want, passes);
                refused(&what, store.publish(store.keys().control_events(), b"x").await, want, passes);
            }
            State::WrongPassword => {}
            _ => refused(&what, book.issue(&trouble.b1, &mut order(&store)).await, want, passes),
        }
        if matches!(state, State::MasterDown | State::Loading | State::Busy | State::NoKeys | State::WrongType) {
            refused(&what, roster::rosters(&store).await, want, passes);
            refused(&what, book.find(&Player::new("bob").expect("valid")).await, want, passes);
            let rows = [NodeId::new("b1").expect("valid")];
            if state != State::WrongType {
                refused(&what, roster::rows_of(&store, &rows).await, want, passes);
                refused(&what, store.fields(&[store.keys().node(&rows[0])], &["role"]).await, want, passes);
            }
        }
        if state == State::WrongType {
            let bob = Player::new("bob").expect("valid");
            refused(&what, store.rows(&[store.keys().token(&bob)]).await, want, passes);
            // Where some fields of many rows are read, a key of another type hides no other row.
            let fields = store.fields(&[store.keys().token(&bob)], &["id"]).await.expect("the others are read");
            assert!(fields.iter().all(maitred::store::Row::is_empty));
        }
        if matches!(state, State::Loading | State::Busy | State::WrongPassword) {
            refused(&what, store.prepare().await, want, passes);
        }
        assert!(began.elapsed() < Duration::from_secs(8), "{state:?} took {:?}", began.elapsed());
    }
}

// REL-4: a cluster that serves nothing yet.
#[tokio::test]
async fn rel_4_a_cluster_that_is_down_is_typed() {
    let server = TestStore::with_args(&["--cluster-enabled", "yes"]);
    let options = StoreOptions {
        operation_timeout: Duration::from_millis(1_000),
        ..StoreOptions::new(StoreUrl::parse(&server.url()).expect("valid"))
    };
    let store = Store::open(Zone::new("eu").expect("valid"), options).await.expect("it answers");
    let secret = maitred::envelope::Secret::from_base64("TEST", crate::fixtures::command::SECRET).expect("valid");
    let verifier = maitred::store::Verifier::new(maitred::envelope::Keyring::new(
        Zone::new("eu").expect("valid"),
        secret,
        Vec::new(),
    ));
    let book = Book::new(store.clone(), verifier, Control::default(), BookOptions::default());
    let b1 = NodeEpoch { id: NodeId::new("b1").expect("valid"), epoch: maitred::ids::Epoch(1) };
    refused("a cluster without slots", book.issue(&b1, &mut order(&store)).await, StoreRefusal::ClusterDown, true);
}
