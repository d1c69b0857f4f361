//! Names, store URLs and secrets: what people and other programs hand in.

use maitred::agent::config::SecretUrl;
use maitred::envelope::{SECRET_MIN_BYTES, Secret};
use maitred::ids::{
    Incarnation, NAME_MAX_BYTES, NODE_ID_MAX_BYTES, NodeId, OperationId, PLAYER_MAX_BYTES, Player, Region, RequestId,
    Role, ServiceName, TokenId, Zone,
};
use maitred::store::StoreUrl;
use proptest::prelude::*;

use super::damage::{changes, damaged_text, noise};
use super::{cases, check, is_told};

fn text(good: Vec<String>) -> impl Strategy<Value = String> {
    let broken = (0..good.len(), changes()).prop_map(move |(at, changes)| damaged_text(&good[at], &changes));
    let noise = noise().prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    prop_oneof![4 => broken, 1 => noise]
}

// REL-3: what is a name is one everywhere, in a key, a channel, a line of the CLI.
#[test]
fn rel_3_any_text_is_an_id_in_bounds_or_is_refused() {
    let good = ["b1", "eu-west.1", "alice", "Müller", &"n".repeat(NODE_ID_MAX_BYTES), &"p".repeat(PLAYER_MAX_BYTES)];
    check(cases::IDS, text(good.map(str::to_owned).into()), |text| {
        macro_rules! try_as {
            ($($id:ident $max:expr, $plain:expr;)+) => {$(
                match $id::new(&text) {
                    Ok(id) => {
                        prop_assert_eq!(id.as_str(), text.as_str());
                        prop_assert!(!text.is_empty() && text.len() <= $max, stringify!($id));
                        prop_assert!(!text.contains(|c: char| c.is_whitespace() || c.is_control()));
                        prop_assert!(!$plain || text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
                        let json = serde_json::to_string(&id).expect("an id is JSON");
                        prop_assert_eq!(serde_json::from_str::<$id>(&json).ok(), Some(id));
                    }
                    Err(error) => is_told(&error)?,
                }
            )+};
        }
        try_as! {
            Zone NAME_MAX_BYTES, true;
            NodeId NODE_ID_MAX_BYTES, true;
            Role NAME_MAX_BYTES, true;
            ServiceName NAME_MAX_BYTES, true;
            Region NAME_MAX_BYTES, true;
            Player PLAYER_MAX_BYTES, false;
            TokenId NAME_MAX_BYTES, true;
            RequestId NAME_MAX_BYTES, true;
            OperationId NAME_MAX_BYTES, true;
            Incarnation NAME_MAX_BYTES, true;
        }
        Ok(())
    });
}

// STO-12, REL-3
#[test]
fn rel_3_any_text_is_a_store_url_or_is_refused_and_its_password_is_not_told() {
    let good = [
        "redis://cook:hunter2@127.0.0.1:7000/3",
        "redis://127.0.0.1",
        "redis://[::1]:6379/0?protocol=resp3",
        "unix:///run/store.sock?db=2&user=cook&pass=hunter2",
        "rediss://cook:hunter2@store.example:6380",
        "redis+sentinel://h1,h2/service",
    ];
    check(cases::URLS, text(good.map(str::to_owned).into()), |text| {
        match StoreUrl::parse(&text) {
            Ok(url) => {
                // A byte of a path or host takes three where it is escaped.
                let shown = url.to_string();
                prop_assert!(shown.len() <= 3 * text.len() + 100, "{} bytes", shown.len());
            }
            Err(error) => {
                is_told(&error)?;
                prop_assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
            }
        }
        if let Some(url) = SecretUrl::new(text.as_str()) {
            prop_assert_eq!(url.expose(), text.as_str());
            let shown = format!("{url} {url:?}");
            prop_assert!(!shown.contains("hunter2") || !text.contains("hunter2@"), "{}", shown);
        }
        Ok(())
    });
}

// ENV-2, REL-3
#[test]
fn rel_3_any_text_is_a_secret_of_enough_bytes_or_is_refused_untold() {
    let good = ["AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", " AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISI\n"];
    check(cases::SECRETS, text(good.map(str::to_owned).into()), |text| {
        match Secret::from_base64("MAITRED_SECRET", &text) {
            Ok(secret) => {
                // Four characters hold three bytes.
                prop_assert!(text.trim().len() * 3 / 4 >= SECRET_MIN_BYTES);
                prop_assert_eq!(secret.kid().as_str().len(), 8);
                let shown = format!("{secret:?}");
                prop_assert!(!shown.contains(text.trim()), "{}", shown);
            }
            Err(error) => {
                is_told(&error)?;
                let told = format!("{error} {error:?}");
                prop_assert!(text.trim().len() < 16 || !told.contains(text.trim()), "{}", told);
            }
        }
        Ok(())
    });
}
