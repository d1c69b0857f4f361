//! YAML text to a tree with lines and columns. The only file that knows the YAML crate.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy};
use serde_saphyr::{Budget, Location, Options, Spanned};

use super::problem::{Place, Problem};

/// Deepest nesting that is read; the config itself needs three levels. It bounds the parser's recursion.
const DEPTH_MAX: usize = 16;
/// Most scalars, lists and mappings that are read; a full config has about a hundred.
const NODES_MAX: usize = 4_096;

const ALLOWED: &str = "one YAML document of nested keys, indented by spaces, without anchors and aliases (*, &, <<), \
                       at most 16 levels deep";
const SECOND_DOCUMENT: &str = "it holds more than one document";

/// One node of the tree and where it starts.
#[derive(Debug)]
pub(super) struct Node {
    pub value: Value,
    pub place: Option<Place>,
}

/// What a node is.
#[derive(Debug)]
pub(super) enum Value {
    Nothing,
    Flag(bool),
    Whole(i128),
    /// A number that is not whole; one that is none where the file has another than 64 bits can hold.
    Fraction(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// True for a mapping, and for nothing: a mapping whose entries are all commented out.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_) | Value::Nothing)
    }
}

impl Value {
    /// The kind in words, without the value: it may be a secret in the wrong place.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Flag(_) => "true or false",
            Self::Whole(_) => "a whole number",
            Self::Fraction(_) => "a number with a fraction, an exponent or too many digits",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Parses one document. An empty one is [`Value::Nothing`]. The parser stops at its first problem.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let options = Options {
        budget: Some(Budget {
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_events: NODES_MAX * 4,
            max_documents: 1,
            // Same bytes on every host, unknown keys refused: nothing would be left to share, so none are taken.
            max_aliases: 0,
            max_anchors: 0,
            max_merge_keys: 0,
            ..Budget::default()
        }),
        alias_limits: AliasLimits {
            max_total_replayed_events: 0,
            max_replay_stack_depth: 0,
            max_alias_expansions_per_anchor: 0,
        },
        // Repeated keys are reported by the walk, together with everything else and with their path.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // `no` and `on` are texts, so that a zone may be called so; a flag is true or false.
        strict_booleans: true,
        // A snippet would quote the file, and with it a password.
        with_snippet: false,
        ..Options::default()
    };
    let problem = |place, what| Problem { path: "(file)".to_owned(), place, what, allowed: ALLOWED.to_owned() };
    if let Some(place) = control_character(text) {
        return Err(problem(Some(place), "it holds a control character".to_owned()));
    }
    // The call for one document would ignore what it cannot read behind a document marker: half a file could be lost
    // without a word. The call for several reads to the end; it leaves empty documents out.
    let documents = serde_saphyr::from_multiple_with_options::<Spanned<Value>>(text, options)
        .map_err(|error| problem(error.location().and_then(place), describe(&error)))?;
    let mut documents = documents.into_iter().map(Node::from);
    let first = documents.next().unwrap_or(Node { value: Value::Nothing, place: None });
    match documents.next() {
        None => Ok(first),
        Some(second) => Err(problem(second.place, SECOND_DOCUMENT.to_owned())),
    }
}

/// The first character that YAML does not allow. The parser takes a zero for the end of the text.
fn control_character(text: &str) -> Option<Place> {
    let is_forbidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let place = |(line, text): (u64, &str)| {
        let column = (1..).zip(text.chars()).find(|(_, c)| is_forbidden(*c))?.0;
        Some(Place { line, column })
    };
    (1..).zip(text.split('\n')).find_map(place)
}

/// The parser's reason without its own idea of the place. None of its texts quotes a value of the file.
fn describe(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error.without_snippet() {
        Error::Message { msg, .. } => format!("it is not readable as YAML: {msg}"),
        Error::UnknownAnchor { .. } => "it uses an alias".to_owned(),
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => SECOND_DOCUMENT.to_owned(),
        Error::Budget { .. } => "it uses an anchor or an alias, or is too big or too deep".to_owned(),
        Error::Eof { .. } => "it is not readable as YAML: it ends too early".to_owned(),
        Error::Unexpected { expected, .. } => format!("it is not readable as YAML: expected {expected}"),
        _ => "it is not readable as YAML".to_owned(),
    }
}

fn place(location: Location) -> Option<Place> {
    (location.line() > 0).then(|| Place { line: location.line(), column: location.column() })
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { place: place(spanned.referenced), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Flag(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Whole(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Whole(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        // The parser answers these three for every spelling of an infinite number, also for a bare `inf` or `nan`.
        // As texts they would not be what stands in the file.
        Ok(match value {
            ".inf" | "-.inf" | ".nan" => Value::Fraction(f64::NAN),
            text => Value::Text(text.to_owned()),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(item.into());
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<Value>>()? {
            map.push((key.into(), entries.next_value::<Spanned<Value>>()?.into()));
        }
        Ok(Value::Map(map))
    }
}
