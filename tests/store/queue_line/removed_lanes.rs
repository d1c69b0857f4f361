//! Lanes that the config does not have any more, and players who stand in them.

use maitred::ids::Role;
use maitred::queue::{Admitter, Choice, LineOptions, Position};

use crate::fixtures::lines::{TestZone, login, names, player, rounds, snapshot};
use maitred_testkit::store::TestStore;

// QUE-10: else those who stood in the lane wait behind every newcomer, for as long as newcomers come.
#[tokio::test]
async fn que_10_players_of_a_lane_that_is_gone_are_served_in_turn_with_the_last_one() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 1_000).await;
    let four = p1.line(&LineOptions { lanes: vec![1, 1, 1, 1], ..login(10_000, 1_000) });
    let two = p1.line(&LineOptions { lanes: vec![1, 1], ..login(10_000, 1_000) });
    // In the order of coming: lanes 2, 1, 3, 1, 2 and so on; lane 1 is the last that is left.
    for n in 0..40 {
        p1.enter_lane(&four, &format!("old-{n:02}"), [2, 1, 3, 1][n % 4]).await;
    }
    let (newcomer, _) = p1.enter_lane(&two, "new-00", 1).await;
    let maitred::queue::Entered::Waiting(newcomer) = newcomer else { panic!("waits: {newcomer:?}") };
    assert_eq!(newcomer.position, 41, "behind all who came before");
    for n in 1..100 {
        p1.enter_lane(&two, &format!("new-{n:02}"), 1).await;
    }
    let told = two.positions(1_000).await.unwrap();
    let order: Vec<String> = told.iter().map(ToString::to_string).collect();
    let want: Vec<String> =
        (0..40).map(|n| format!("old-{n:02}")).chain((0..100).map(|n| format!("new-{n:02}"))).collect();
    assert_eq!(order, want, "QUE-1: in the order of coming");
    for (at, name) in [(0, "old-00"), (1, "old-01"), (2, "old-02"), (39, "old-39"), (40, "new-00"), (139, "new-99")] {
        let Position::Waiting { position, .. } = two.position(&player(name)).await.unwrap() else {
            panic!("{name} waits")
        };
        assert_eq!(position, at + 1, "QUE-8: {name}");
    }

    let mut admitter = Admitter::new(two.clone(), Choice::Backend, 1);
    let mut served = Vec::new();
    while served.len() < want.len() {
        zone.open_gate("login").await;
        let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
        assert!(!round.admitted.is_empty(), "{round:?}");
        served.extend(names(&round.admitted));
    }
    assert_eq!(served, want);
}

// QUE-10: lanes that are left keep their ratio against those that are served with the last one.
#[tokio::test]
async fn que_10_lanes_that_are_gone_share_the_turns_of_the_last_one() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 1_000).await;
    let three = p1.line(&LineOptions { lanes: vec![3, 1, 1], ..login(10_000, 80) });
    let two = p1.line(&LineOptions { lanes: vec![3, 1], ..login(10_000, 80) });
    for n in 0..60 {
        p1.enter_lane(&three, &format!("first-{n:02}"), 0).await;
        p1.enter_lane(&three, &format!("gone-{n:02}"), 2).await;
    }
    let mut admitter = Admitter::new(two.clone(), Choice::Backend, 1);
    zone.open_gate("login").await;
    let announced: Vec<String> = two.positions(80).await.unwrap().iter().map(ToString::to_string).collect();
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    let admitted = names(&round.admitted);
    assert!(admitted.len() >= 80, "{}", admitted.len());
    let first = admitted[..80].iter().filter(|name| name.starts_with("first")).count();
    assert!((58..=62).contains(&first), "three to one: {first} of 80");
    assert_eq!(admitted[..80], announced, "QUE-8");
}
