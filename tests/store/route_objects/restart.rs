//! Owners that start again while others still know their former epoch. If this fails a call waits for its whole timeout
//! although nobody can answer it, or a change is made twice.

use maitred::route::{KindOptions, RouteTimes};

use crate::fixtures::member::{Member, Options};
use crate::fixtures::routes::{Client, Counter, Host, object};
use maitred_testkit::store::TestStore;

/// A sender that looks at nobody again by itself.
fn blind() -> Options {
    Options { refreshing: false, ..Options::default() }
}

/// The next incarnation of a host, which takes its lease over at once.
async fn again(server: &TestStore, host: &Host) -> Host {
    let replaces = Some(host.member.incarnation().await);
    let member = Member::join_with(&server.url(), "a", Options { replaces, ..Options::default() }).await;
    Host::join_as(member, Counter::new(KindOptions::default()), RouteTimes::default()).await
}

// R-19, RTE-7: the new incarnation says at once that it is not the one that was asked; the call is made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_19_a_call_to_a_former_epoch_of_an_owner_is_answered_by_its_present_one() {
    let server = TestStore::start();
    let mut a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let client = Client::join_with(&server.url(), "c", blind()).await;
    client.member.sees(&a.member).await;
    let key = object("counter:one");
    assert_eq!(client.inc(&key, 0).await.unwrap(), 1);
    a.keeper.save(&key).await.unwrap();
    a.member.stop_beating().await;
    a.member.stop_listening().await;
    let next = again(&server, &a).await;
    assert_eq!(client.member.directory.epoch_of(&a.member.id), Some(a.member.epoch()), "it was told of the restart");
    assert_eq!(client.inc(&key, 1).await.expect("no handler of the former epoch ran"), 2);
    assert_eq!(next.keeper.len(), 1);
}

// two processes may believe that they are the one. What one of them refuses the other may have done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_19_a_call_that_the_former_process_still_takes_is_made_once() {
    let server = TestStore::start();
    let mut a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let client = Client::join_with(&server.url(), "c", blind()).await;
    client.member.sees(&a.member).await;
    let key = object("counter:one");
    assert_eq!(client.inc(&key, 0).await.unwrap(), 1);
    a.member.stop_beating().await;
    let next = again(&server, &a).await;
    assert!(a.member.lease.is_valid(), "both believe that they are the one");
    assert_eq!(client.inc(&key, 1).await.expect("the former process answers"), 2);
    assert!(next.keeper.is_empty(), "the call was made again although somebody had taken it");
}
