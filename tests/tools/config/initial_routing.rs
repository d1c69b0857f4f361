//! The list of entry servers. If this fails, an operator's players end up nowhere or on a server that was never meant for
//! them, and no line says why.

use maitred::Error;
use maitred::agent::config::Config;
use maitred::ids::BackendName;

use super::{file, problems, refused};

fn servers(value: &str) -> Vec<String> {
    let config = Config::from_yaml(&file("initialRouting.servers", value)).unwrap_or_else(|error| panic!("{error}"));
    config.initial_routing.servers.iter().map(|name| name.as_str().to_owned()).collect()
}

#[test]
fn plc_2_the_list_keeps_its_order_and_may_be_empty() {
    let text = "initialRouting:\n  servers:\n    - lobby-b\n    - \"Lobby A\"\n    - \"17\"\n  timeoutSeconds: 120\n";
    let config = Config::from_yaml(text).expect("valid");
    assert_eq!(
        config.initial_routing.servers.iter().map(BackendName::as_str).collect::<Vec<_>>(),
        ["lobby-b", "Lobby A", "17"]
    );
    assert_eq!(config.initial_routing.timeout().as_secs(), 120);
    assert!(servers("[]").is_empty());
    assert_eq!(Config::default().initial_routing.timeout_seconds, 15);
    let full: Vec<String> = (0..16).map(|n| format!("s{n}")).collect();
    assert_eq!(servers(&format!("[{}]", full.join(", "))), full);
    let long = "x".repeat(128);
    assert_eq!(servers(&format!("[{long}]")), [long]);
}

#[test]
fn plc_2_wrong_lists_are_errors_with_path_line_and_allowed_values() {
    for value in ["lobby-a", "17", "true", "~", "", "{a: b}"] {
        refused("initialRouting.servers", value, "a list of at most 16 names");
    }
    let many: Vec<String> = (0..17).map(|n| format!("s{n}")).collect();
    refused("initialRouting.servers", &format!("[{}]", many.join(", ")), "at most 16");

    let text = format!(
        "initialRouting:\n  servers:\n    - lobby\n    - \"\"\n    - \"  \"\n    - \" a\"\n    - 5\n    - [b]\n    - {}\n    - lobby\n",
        "x".repeat(129)
    );
    let found = problems(Config::from_yaml(&text));
    let starts: Vec<&str> = found.iter().map(|line| line.split(';').next().unwrap_or_default()).collect();
    assert_eq!(
        starts,
        [
            "initialRouting.servers[1]: does not fit (line 4, column 7)",
            "initialRouting.servers[2]: does not fit (line 5, column 7)",
            "initialRouting.servers[3]: does not fit (line 6, column 7)",
            "initialRouting.servers[4]: expected text, found a whole number (put it in quotes) (line 7, column 7)",
            "initialRouting.servers[5]: expected text, found a list (put it in quotes) (line 8, column 7)",
            "initialRouting.servers[6]: does not fit (line 9, column 7)",
            "initialRouting.servers[7]: given twice (line 10, column 7)",
        ]
    );
    assert!(found.iter().all(|line| line.contains("; allowed: a list of at most 16 names")), "{found:#?}");
}

// Code may set the list, too.
#[test]
fn plc_2_a_list_that_code_set_is_held_against_the_same_limits() {
    let name = |text: &str| BackendName::new(text).expect("valid");
    let said = |servers: Vec<BackendName>| {
        let mut config = Config::from_yaml("enabled: true\nnode: { id: p1 }\n").expect("valid");
        config.initial_routing.servers = servers;
        match config.check_enabled() {
            Err(Error::Config { problems }) => problems.join("\n"),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(said(vec![name("a"), name("b")]), "Ok(())");
    assert!(
        said(vec![name("a"), name("b"), name("a")]).starts_with("initialRouting.servers: a name stands in it twice")
    );
    let many = (0..17).map(|n| name(&format!("s{n}"))).collect();
    assert!(said(many).starts_with("initialRouting.servers: 17 names are too many"));
}
