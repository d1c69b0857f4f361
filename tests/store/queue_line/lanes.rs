use maitred::ids::Role;
use maitred::queue::{Admitter, Choice, Entered, LineOptions, Position};

use crate::fixtures::lines::{TestZone, login, player, rounds, snapshot};
use maitred_testkit::store::TestStore;

// QUE-10: 3 to 1, neither starves, and one that was idle does not make up for it.
#[tokio::test]
async fn que_10_lanes_are_served_by_their_ratio() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 100_000).await;
    let line = p1.line(&LineOptions { lanes: vec![3, 1], ..login(100_000, 50_000) });
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    let mut next = [0, 0];
    let enter = async |lane: u16, n: u32| p1.enter_lane(&line, &format!("l{lane}-{n:04}"), lane).await;

    // Only the second lane is served for a while.
    for n in 0..100 {
        enter(1, n).await;
    }
    zone.open_gate("login").await;
    let mut order: Vec<(u16, String)> = Vec::new();
    for _ in 0..2 {
        let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
        order.extend(round.admitted.iter().map(|a| (a.lane, a.pass.player.to_string())));
    }
    assert_eq!(order.len(), 100);
    order.clear();

    for n in 100..300 {
        enter(1, n).await;
    }
    for n in 0..500 {
        enter(0, n).await;
    }
    // QUE-8: everybody's position is the place in the order that follows.
    let announced = line.positions(700).await.unwrap();
    let probe = player("l1-0150");
    let Position::Waiting { position, .. } = line.position(&probe).await.unwrap() else { panic!("waits") };
    assert_eq!(announced[usize::try_from(position).unwrap() - 1], probe);
    while order.len() < 640 {
        zone.open_gate("login").await;
        let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
        order.extend(round.admitted.iter().map(|a| (a.lane, a.pass.player.to_string())));
    }
    for window in order[..640].windows(400) {
        let first = window.iter().filter(|(lane, _)| *lane == 0).count();
        assert!((296..=304).contains(&first), "{first} of 400");
    }
    for lane in 0..2 {
        let of: Vec<&String> = order.iter().filter(|(of, _)| *of == lane).map(|(_, name)| name).collect();
        assert!(of.is_sorted(), "QUE-1: first in, first out in lane {lane}");
        next[usize::from(lane)] = of.len();
    }
    let served: Vec<&str> = order.iter().map(|(_, name)| name.as_str()).collect();
    let told: Vec<&str> = announced.iter().map(|player| player.as_str()).collect();
    assert_eq!(served[..640], told[..640], "{next:?}");
}

#[tokio::test]
async fn que_1_who_enters_again_stays_in_the_lane_of_the_first_time() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let line = p1.line(&LineOptions { lanes: vec![3, 1], ..login(500, 1) });
    let (Entered::Waiting(first), _) = p1.enter_lane(&line, "alice", 1).await else { panic!("waits") };
    let (Entered::Waiting(again), _) = p1.enter_lane(&line, "alice", 0).await else { panic!("waits") };
    assert_eq!((again.seq, again.lane), (first.seq, 1));
    assert!(line.ticket_of(&player("alice")).await.unwrap().is_some(), "and what was signed says so");
    let wrong = line
        .enter(
            &p1.who,
            &player("bob"),
            2,
            &maitred::ids::SessionId::fresh(),
            &maitred::queue::Attributes::default(),
            None,
        )
        .await;
    assert!(matches!(wrong, Err(maitred::Error::OutOfBounds { .. })));
}
