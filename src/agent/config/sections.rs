//! What of a config can change while an agent runs, section by section.

use super::model::Config;

/// How a changed section comes into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// At once, for every request that begins later. Such a section can also be pushed into the store (POL-5).
    Hot,
    /// With a new agent: the present one leaves first. It stays with each host's file.
    Anew,
}

macro_rules! sections {
    ($($name:literal $field:ident $change:ident;)+) => {
        /// Every section (and key of the top) with how it changes.
        pub(super) const SECTIONS: &[(&str, Change)] = &[$(($name, Change::$change)),+];

        impl Config {
            /// The sections in which `other` differs, by their names in the file, in its order.
            pub fn changed(&self, other: &Self) -> Vec<&'static str> {
                // Every field by its name, so that a new section has to be decided on here.
                let Self { $($field),+ } = self;
                let mut names = Vec::new();
                $(if *$field != other.$field {
                    names.push($name);
                })+
                names
            }

            /// Takes over the sections of `from` that can change while an agent runs, and no other.
            pub(crate) fn take_hot(&mut self, from: &Self) {
                $(if Change::$change == Change::Hot {
                    self.$field.clone_from(&from.$field);
                })+
            }
        }
    };
}

sections! {
    // Who this process is, and what it is told apart by.
    "enabled" enabled Anew;
    "zone" zone Anew;
    "node" node Anew;
    "store" store Anew;
    "security" security Anew;
    // The lease hangs on it, and every node that looks at this one.
    "heartbeat" heartbeat Anew;
    // Compared with the beats of all nodes; the loops and the view are made with it.
    "directory" directory Anew;
    // In the rows of tokens that live.
    "tokens" tokens Anew;
    "dispatch" dispatch Hot;
    // The inbox is made with it.
    "messages" messages Anew;
    "triggers" triggers Hot;
    "texts" texts Hot;
    "limits" limits Hot;
    // Each round, enter and sweep reads them anew.
    "lines" lines Hot;
    "initialRouting" initial_routing Hot;
    "routing" routing Hot;
    "selector" selector Hot;
    "wait" wait Hot;
    // The directory is made with it.
    "peers" peers Anew;
}

/// True where the section can change while an agent runs.
pub(super) fn is_hot(section: &str) -> bool {
    SECTIONS.iter().any(|(name, change)| *name == section && *change == Change::Hot)
}

/// The names of the sections that can, for a message.
pub(super) fn hot() -> String {
    let names: Vec<&str> =
        SECTIONS.iter().filter(|(_, change)| *change == Change::Hot).map(|(name, _)| *name).collect();
    names.join(", ")
}

impl Config {
    /// True for a section that comes into force without a restart of the agent, from the file as well as by a push.
    pub fn is_hot(section: &str) -> bool {
        is_hot(section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::schema;

    // POL-5: what is not decided on here could neither be pushed nor reloaded, and nobody would know.
    #[test]
    fn pol_5_every_section_of_the_file_is_decided_on_and_no_other() {
        let mut named: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        let mut of_the_file = schema::names_under("");
        named.sort_unstable();
        of_the_file.sort_unstable();
        assert_eq!(named, of_the_file);
        for never in ["enabled", "zone", "node", "store", "security"] {
            assert!(!is_hot(never), "{never}: a push must not move a node or change whom it believes");
        }
    }

    #[test]
    fn pol_3_only_hot_sections_are_taken_over() {
        let mut other = Config { enabled: true, ..Config::default() };
        other.heartbeat.interval_ms = 77;
        other.dispatch.max_retries = 9;
        other.texts.lost = "gone".to_owned();
        let mut config = Config::default();
        assert_eq!(config.changed(&other), ["enabled", "heartbeat", "dispatch", "texts"]);
        config.take_hot(&other);
        assert_eq!(config.changed(&other), ["enabled", "heartbeat"]);
        assert_eq!((config.dispatch.max_retries, config.texts.lost.as_str()), (9, "gone"));
    }
}
