//! The config: its file and its environment.

use maitred::Error;
use maitred::agent::config::{Config, ENV_NODE_ADDR, ENV_NODE_ID, ENV_STORE, ENV_ZONE};
use proptest::prelude::*;

use super::damage::{changes, damaged_text, noise};
use super::{cases, check};

const FILES: [&str; 4] = [
    "enabled: true\nzone: eu\nnode:\n  id: b-1\n  role: backend\n  labels: { locality: rack-1 }\n",
    "store:\n  url: redis://user:hunter2@host:6379/0\n  commandTimeoutMs: 500\n",
    "tokens: { ttlMs: 1000, claimReanimateMs: 500, reapBatch: 64 }\ndirectory: { suspectMs: 2500, offlineMs: 3500 }\n",
    "texts:\n  lost: \"gone\"\n  noCandidate: |\n    nobody\nheartbeat:\n  intervalMs: 1000 # ms\n",
];
/// A problem names a path, a place and what is allowed.
const PROBLEM_MAX_BYTES: usize = 2_048;

/// Either a config that could be enabled as far as its values go, or problems in bounds.
fn judge(text: &str, read: Result<Config, Error>) -> Result<(), TestCaseError> {
    match read {
        Ok(config) => {
            prop_assert!(config.heartbeat.interval_ms * 2 < config.directory.suspect_ms, "NOD-7");
            prop_assert!(config.directory.suspect_ms < config.directory.offline_ms);
            prop_assert!(config.tokens.claim_reanimate_ms <= config.tokens.ttl_ms);
            prop_assert!(config.lease_ms() > 0);
        }
        Err(Error::Config { problems }) => {
            prop_assert!(!problems.is_empty() && problems.len() <= text.len() + 8, "{} problems", problems.len());
            for problem in &problems {
                prop_assert!(problem.len() <= PROBLEM_MAX_BYTES, "{} bytes: {}", problem.len(), problem);
                prop_assert!(!problem.contains("hunter2"), "{}", problem);
            }
        }
        Err(other) => return Err(TestCaseError::fail(format!("not an error of the config: {other:?}"))),
    }
    Ok(())
}

// POL-1, POL-3, REL-3
#[test]
fn rel_3_a_config_file_of_any_text_is_read_or_refused() {
    for file in FILES {
        Config::from_yaml(file).expect("the file itself is good");
    }
    let broken = (0..FILES.len(), changes()).prop_map(|(at, changes)| damaged_text(FILES[at], &changes));
    let noise = noise().prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    check(cases::CONFIGS, prop_oneof![7 => broken, 1 => noise], |text| judge(&text, Config::from_yaml(&text)));
}

// POL-1, REL-3
#[test]
fn rel_3_an_environment_of_any_text_is_taken_or_refused_as_a_whole() {
    let good = [
        (ENV_NODE_ID, "b-1"),
        (ENV_NODE_ADDR, "host:25565"),
        (ENV_STORE, "redis://user:hunter2@host:6379/0"),
        (ENV_ZONE, "eu"),
    ];
    check(cases::ENVIRONMENTS, (0..good.len(), changes()), |(at, changes)| {
        let broken = damaged_text(good[at].1, &changes);
        let value = |name: &str| {
            let at_name = good.iter().position(|(other, _)| *other == name)?;
            Some(if at_name == at { broken.clone() } else { good[at_name].1.to_owned() })
        };
        let mut config = Config::default();
        match config.apply_env(value) {
            Ok(()) => judge("", Ok(config)),
            Err(error) => {
                prop_assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()), "nothing was taken");
                judge(&broken, Err(error))
            }
        }
    });
}
