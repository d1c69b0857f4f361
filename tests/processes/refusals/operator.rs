//! What an operator is told.

use super::states::{State, Trouble};
use crate::fixtures::command::{Ran, maitred, run};

fn ask(trouble: &Trouble, args: &[&str]) -> Ran {
    let mut command = maitred(args);
    command.args(["--zone", "eu"]).arg("--config").arg(trouble.fixture.config());
    command.env("MAITRED_STORE", &trouble.url);
    run(command)
}

// REL-4: at three in the morning one line has to say what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rel_4_reap_nodes_and_doctor_say_what_to_do_and_exit_with_1() {
    for state in State::ALL {
        let trouble = Trouble::new(state).await;
        let advice = state.refusal().advice();
        if state == State::Full {
            // What ends tokens frees memory, and a full store lets it.
            ask(&trouble, &["reap"]).code(0).shows(&["expired       ┆ 1"]);
        } else {
            ask(&trouble, &["reap"]).code(1).complains(&["maitred: ", advice]);
            // A script that may not publish fails behind its writes, so a second sweep finds nothing.
            if state != State::NoChannels {
                let told = ask(&trouble, &["reap", "--json"]).code(1).json();
                assert!(told["error"].as_str().is_some_and(|error| error.contains(advice)), "{state:?}: {told}");
            }
        }

        let nodes = ask(&trouble, &["nodes"]);
        match state {
            // Reading goes on.
            State::Full | State::ReadOnly | State::NoReplicas | State::NoEvalsha | State::NoChannels => {
                nodes.code(0).shows(&["b1"]);
            }
            _ => {
                nodes.code(1).complains(&["maitred: ", advice]);
            }
        }

        let told = ask(&trouble, &["doctor", "--json"]).code(1).json();
        assert_eq!(told["ok"], false, "{state:?}");
        let checks = told["checks"].as_array().expect("checks");
        let failed: Vec<_> = checks.iter().filter(|check| check["verdict"] == "fail").collect();
        let advised = failed.iter().any(|check| {
            check["advice"].as_str().is_some_and(|said| said.contains(advice) || said.starts_with("ACL SETUSER"))
        });
        assert!(advised, "{state:?}: nothing says {advice:?}: {failed:?}");
        ask(&trouble, &["doctor"]).code(1).shows(&["FAIL"]);
    }
}
