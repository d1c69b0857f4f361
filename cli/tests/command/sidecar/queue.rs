//! Login lines through the sidecar: enter, wait, be admitted, and what is said of an admission.

use serde_json::{Value, json};

use super::{Fleet, LIMIT, ask};
use maitred_testkit::fleet::Node;
use maitred_testkit::wait::eventually;

/// A fleet whose line lets in `places` players.
async fn fleet_with_line(places: u64) -> (Fleet, Node, Node) {
    let fleet = Fleet::new();
    let config = std::fs::read_to_string(fleet.config()).expect("the config");
    let line = "lines: { login: { fixedPerSecond: 1000, burst: 100, tickMs: 100, lanes: [1, 1], arriveMs: 20000 } }\n";
    std::fs::write(fleet.config(), format!("{config}{line}")).expect("a config");
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    load(&fleet, &mut backend, 0, places).await;
    eventually("the proxy sees the backend", LIMIT, async || {
        (ask(&mut proxy, json!({"op": "status", "id": "seen"})).await["online"] == 2).then_some(())
    })
    .await;
    (fleet, backend, proxy)
}

/// Tells the backend its load, and waits until the store has it.
async fn load(fleet: &Fleet, backend: &mut Node, players: u64, soft_cap: u64) {
    let line = json!({"op": "load", "id": "load", "players": players, "soft_cap": soft_cap});
    assert_eq!(ask(backend, line).await["outcome"], "ok");
    let mut conn = fleet.store.conn().await;
    eventually("the load is published", LIMIT, async || {
        let row: (String, String) = redis::cmd("HMGET")
            .arg("maitred:{eu}:node:b1")
            .arg(&["players", "soft_cap"])
            .query_async(&mut conn)
            .await
            .expect("HMGET");
        (row == (players.to_string(), soft_cap.to_string())).then_some(())
    })
    .await;
}

async fn say(node: &mut Node, op: &str, player: &str, more: Value) -> Value {
    let mut line = json!({"op": op, "id": format!("{op}-{player}"), "player": player, "line": "login"});
    line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    ask(node, line).await
}

async fn event(node: &mut Node, what: &str, player: &str) -> Value {
    node.wait_for(|line| line["event"] == what && line["player"] == player, LIMIT).await
}

/// Enters until the place is there: the gate of a new line opens only after a moment.
async fn admitted(proxy: &mut Node, player: &str) -> Value {
    let answer = say(proxy, "enter", player, json!({})).await;
    match answer["outcome"].as_str() {
        Some("admitted") => answer,
        Some("waiting") => event(proxy, "admitted", player).await,
        _ => panic!("{answer}"),
    }
}

#[tokio::test]
async fn cli_3_que_2_a_player_is_let_in_by_a_pass_that_is_good_once() {
    let (fleet, mut backend, mut proxy) = fleet_with_line(1).await;
    let told = admitted(&mut proxy, "alice").await;
    assert_eq!(
        (&told["server"], &told["addr"], &told["link"]),
        (&json!("b1"), &json!("b1.example:25565"), &Value::Null)
    );
    assert_eq!((&told["line"], &told["lane"]), (&json!("login"), &json!(0)));
    let again = say(&mut proxy, "enter", "alice", json!({})).await;
    assert_eq!((&again["outcome"], &again["serial"]), (&json!("admitted"), &told["serial"]), "the same pass: {again}");

    // The only place is promised, so the next one waits; a redeem counts the player.
    let waits = say(&mut proxy, "enter", "bob", json!({"lane": 1, "attributes": "rank=vip"})).await;
    assert_eq!((&waits["outcome"], &waits["position"]), (&json!("waiting"), &json!(1)), "{waits}");
    assert!(waits["session"].is_string(), "{waits}");
    let redeem = json!({"op": "redeem", "id": "r1", "player": "alice", "pass": told["pass"]});
    for (player, pass, reason) in [("bob", &told["pass"], "wrong_player"), ("alice", &json!("x.y"), "invalid")] {
        let wrong = json!({"op": "redeem", "id": "r0", "player": player, "pass": pass});
        let refused = ask(&mut backend, wrong).await;
        assert_eq!((&refused["outcome"], &refused["reason"]), (&json!("refused"), &json!(reason)), "{refused}");
    }
    let redeemed = ask(&mut backend, redeem.clone()).await;
    assert_eq!((&redeemed["outcome"], &redeemed["serial"]), (&json!("redeemed"), &told["serial"]), "{redeemed}");
    let late = say(&mut proxy, "arrived", "alice", json!({"serial": 1})).await;
    assert_eq!(late["outcome"], "late", "another admission: {late}");
    assert_eq!(say(&mut proxy, "arrived", "alice", json!({"serial": told["serial"]})).await["outcome"], "arrived");
    let twice = ask(&mut backend, redeem).await;
    assert_eq!((&twice["outcome"], &twice["reason"]), (&json!("refused"), &json!("redeemed")), "{twice}");

    // She goes, and bob is let in.
    load(&fleet, &mut backend, 0, 1).await;
    let told = event(&mut proxy, "admitted", "bob").await;
    assert_eq!((&told["lane"], &told["session"]), (&json!(1), &waits["session"]), "{told}");
}

#[tokio::test]
async fn cli_3_que_3_que_13_who_drops_or_cannot_be_moved_keeps_the_place() {
    let (_fleet, mut backend, mut proxy) = fleet_with_line(1).await;
    let told = admitted(&mut proxy, "alice").await;
    let first = say(&mut proxy, "enter", "bob", json!({})).await;
    assert_eq!(say(&mut proxy, "enter", "carol", json!({})).await["position"], 2);

    // A late goodbye of an older connection changes nothing.
    proxy.send(&json!({"op": "enter", "id": "anew", "player": "bob", "line": "login"}));
    let (mut anew, mut old) = (Value::Null, Value::Null);
    // Which of the two comes first is open.
    while anew.is_null() || old.is_null() {
        let line = proxy.next_line(LIMIT).await;
        match (line["id"].as_str(), line["event"].as_str()) {
            (Some("anew"), _) => anew = line,
            (_, Some("out")) => old = line,
            _ => {}
        }
    }
    assert_eq!((&anew["outcome"], &anew["position"]), (&json!("waiting"), &json!(1)), "{anew}");
    assert_eq!((&old["why"], &old["session"]), (&json!("elsewhere"), &first["session"]), "{old}");
    let late = say(&mut proxy, "left", "bob", json!({"session": first["session"]})).await;
    assert_eq!(late["outcome"], "other", "{late}");
    let away = say(&mut proxy, "left", "bob", json!({"session": anew["session"]})).await;
    assert_eq!(away["outcome"], "away", "{away}");
    assert_eq!(say(&mut proxy, "enter", "bob", json!({})).await["position"], 1, "where bob stood");
    assert_eq!(say(&mut proxy, "left", "carol", json!({"quit": true})).await["outcome"], "left");
    assert_eq!(say(&mut proxy, "left", "carol", json!({"quit": true})).await["outcome"], "none");

    // Nobody is admitted meanwhile, so that the order can be seen.
    assert_eq!(ask(&mut proxy, json!({"op": "admits", "id": "a1", "on": false})).await["outcome"], "ok");
    let back = say(&mut proxy, "failed", "alice", json!({"serial": told["serial"]})).await;
    assert_eq!((&back["outcome"], &back["position"]), (&json!("back"), &json!(1)), "before bob: {back}");
    assert_eq!(say(&mut proxy, "failed", "alice", json!({})).await["outcome"], "late");
    let void = ask(&mut backend, json!({"op": "redeem", "id": "r1", "player": "alice", "pass": told["pass"]})).await;
    assert_eq!((&void["outcome"], &void["reason"]), (&json!("refused"), &json!("void")), "{void}");
    assert_eq!(ask(&mut proxy, json!({"op": "admits", "id": "a2", "on": true})).await["outcome"], "ok");
    let again = event(&mut proxy, "admitted", "alice").await;
    assert!(again["serial"].as_u64() > told["serial"].as_u64(), "{again}");
    // of a visit before the one that was let in.
    assert_eq!(again["session"], back["session"], "{again}");
    let late = say(&mut proxy, "left", "alice", json!({"session": told["session"]})).await;
    assert_eq!(late["outcome"], "other", "{late}");
}

#[tokio::test]
async fn cli_3_the_ops_of_lines_are_answered_by_whom_they_concern() {
    let (_fleet, mut backend, mut proxy) = fleet_with_line(1).await;
    let unknown = say(&mut proxy, "enter", "alice", json!({"line": "vip"})).await;
    assert!(unknown["error"].as_str().is_some_and(|error| error.contains("vip")), "{unknown}");
    let lane = say(&mut proxy, "enter", "alice", json!({"lane": 7})).await;
    assert_eq!((&lane["outcome"], &lane["retryable"]), (&json!("error"), &json!(false)), "{lane}");
    let long = say(&mut proxy, "enter", "alice", json!({"attributes": "x".repeat(65)})).await;
    assert!(long["error"].as_str().is_some_and(|error| error.contains("65 bytes")), "{long}");
    let elsewhere = say(&mut backend, "enter", "alice", json!({})).await;
    assert!(elsewhere["error"].as_str().is_some_and(|error| error.contains("a backend has no such op")), "{elsewhere}");
    let pass = ask(&mut proxy, json!({"op": "redeem", "id": "r1", "player": "alice", "pass": "x.y"})).await;
    assert!(pass["error"].as_str().is_some_and(|error| error.contains("a proxy has no such op")), "{pass}");
    for op in ["left", "arrived", "failed"] {
        let nobody = say(&mut proxy, op, "alice", json!({})).await;
        assert_eq!(nobody["outcome"], if op == "left" { "none" } else { "late" }, "{nobody}");
    }
}

// QUE-5: a link is picked like a backend, and lets in whom the pass names.
#[tokio::test]
async fn cli_3_que_5_a_link_takes_the_players_of_a_line_that_leads_to_links() {
    let fleet = Fleet::new();
    let config = std::fs::read_to_string(fleet.config()).expect("the config");
    let line = "lines: { login: { pick: link, tickMs: 100 } }\n";
    std::fs::write(fleet.config(), format!("{config}{line}")).expect("a config");
    let (mut link, _) = fleet.node("l1", "link").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    assert_eq!(ask(&mut link, json!({"op": "load", "id": "l", "soft_cap": 5})).await["outcome"], "ok");
    let told = admitted(&mut proxy, "alice").await;
    assert_eq!((&told["link"], &told["link_addr"]), (&json!("l1"), &json!("l1.example:25565")), "{told}");
    assert_eq!(told["server"], Value::Null);
    let redeemed = ask(&mut link, json!({"op": "redeem", "id": "r1", "player": "alice", "pass": told["pass"]})).await;
    assert_eq!(redeemed["outcome"], "redeemed", "{redeemed}");
    let join = ask(&mut link, json!({"op": "redeem", "id": "r2", "player": "alice"})).await;
    assert!(join["error"].as_str().is_some_and(|error| error.contains("no such op")), "{join}");
}

// CLI-3: whoever says `left` was answered. Told `out` besides, a client that enters again after an `out` brings a player back who
// has gone.
#[tokio::test]
async fn cli_3_who_leaves_by_their_own_wish_is_told_no_end() {
    let (_fleet, _backend, mut proxy) = fleet_with_line(1).await;
    admitted(&mut proxy, "alice").await;
    for (player, quit) in [("bob", true), ("carol", false)] {
        assert_eq!(say(&mut proxy, "enter", player, json!({})).await["outcome"], "waiting");
        proxy.send(&json!({"op": "left", "id": "gone", "player": player, "line": "login", "quit": quit}));
        let mut heard = Vec::new();
        let mut asked = 0;
        // Whatever the end of the visit is told by comes before the second answer behind it.
        while asked < 2 {
            let line = proxy.next_line(LIMIT).await;
            if line["id"] == "gone" || line["id"] == "after" {
                asked += 1;
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                proxy.send(&json!({"op": "status", "id": "after"}));
            }
            heard.push(line);
        }
        assert!(heard.iter().all(|line| line["event"] != "out"), "{player}: {heard:?}");
    }
}
