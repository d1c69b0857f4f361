//! Replies of a server, and their way into Lua and back by the rules that every server has.

use mlua::{Error, Lua, Result, Table, Value};

/// A reply in RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A whole number.
    Int(i64),
    /// A text or bytes.
    Bulk(Vec<u8>),
    /// `+OK` and its like.
    Status(String),
    /// An error, with its code in front.
    Error(String),
    /// Several.
    Array(Vec<Reply>),
}

impl Reply {
    /// What the client read.
    pub fn of(value: &redis::Value) -> Self {
        match value {
            redis::Value::Nil => Self::Nil,
            redis::Value::Int(number) => Self::Int(*number),
            redis::Value::BulkString(bytes) => Self::Bulk(bytes.clone()),
            redis::Value::SimpleString(text) => Self::Status(text.clone()),
            redis::Value::Okay => Self::Status("OK".to_owned()),
            redis::Value::Array(items) => Self::Array(items.iter().map(Self::of).collect()),
            redis::Value::ServerError(error) => {
                let detail = error.details().map(|detail| format!(" {detail}")).unwrap_or_default();
                Self::Error(format!("{}{detail}", error.code()))
            }
            other => panic!("RESP2 has no {other:?}"),
        }
    }

    /// As a script sees it: nil is `false`, a status is a table with `ok`, an error ends the script.
    pub fn to_lua(&self, lua: &Lua) -> Result<Value> {
        Ok(match self {
            Self::Nil => Value::Boolean(false),
            Self::Int(number) => Value::Integer(*number),
            Self::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
            Self::Status(text) => Value::Table(lua.create_table_from([("ok", text.as_str())])?),
            Self::Error(text) => return Err(Error::RuntimeError(text.clone())),
            Self::Array(items) => {
                let items: Vec<Value> = items.iter().map(|item| item.to_lua(lua)).collect::<Result<_>>()?;
                Value::Table(lua.create_sequence_from(items)?)
            }
        })
    }

    /// What a script hands back, as the client gets it: `false` and nil are nil, `true` is 1, an array ends at its
    /// first nil. Numbers that are no whole numbers are refused: servers with Lua 5.1 cut them, those with 5.4 do not.
    pub fn from_lua(value: &Value) -> Result<Self> {
        Ok(match value {
            Value::Nil | Value::Boolean(false) => Self::Nil,
            Value::Boolean(true) => Self::Int(1),
            Value::Integer(number) => Self::Int(*number),
            Value::String(text) => Self::Bulk(text.as_bytes().to_vec()),
            Value::Table(table) => Self::from_table(table)?,
            other => return Err(Error::RuntimeError(format!("an answer with a {}: {other:?}", other.type_name()))),
        })
    }

    fn from_table(table: &Table) -> Result<Self> {
        if let Some(text) = table.raw_get::<Option<String>>("err")? {
            return Ok(Self::Error(text));
        }
        if let Some(text) = table.raw_get::<Option<String>>("ok")? {
            return Ok(Self::Status(text));
        }
        let mut items = Vec::new();
        loop {
            let item: Value = table.raw_get(items.len() + 1)?;
            if item.is_nil() {
                return Ok(Self::Array(items));
            }
            items.push(Self::from_lua(&item)?);
        }
    }

    /// The texts of an array of texts.
    pub fn texts(&self) -> Option<Vec<String>> {
        let Self::Array(items) = self else { return None };
        let text = |item: &Self| match item {
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        };
        items.iter().map(text).collect()
    }
}
