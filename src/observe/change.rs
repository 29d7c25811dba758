//! `POST /api/v1/pools/POOL/backends/BACKEND`: what the body may say.

use serde::{Deserialize, Deserializer};
use serde_json::Number;

use crate::limits::WEIGHT_MAX;
use crate::state::{AdminState, Change};

/// The body, as JSON has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    admin: Option<String>,
    /// `null` says something else than nothing.
    #[serde(default, deserialize_with = "said")]
    weight: Option<Option<Number>>,
}

fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Number>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// What is wrong with a body.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadChange {
    #[error(r#"the body is a JSON object, such as {{"admin":"drain"}} or {{"weight":3}}"#)]
    NoObject,
    #[error("the body is not understood: {0}")]
    Form(#[from] serde_json::Error),
    #[error("the body changes nothing; it has `admin`, `weight` or both")]
    Nothing,
    #[error("`admin` is one of ready, drain, maintenance")]
    Admin,
    #[error("`weight` is a whole number from 0 to {WEIGHT_MAX}, or null for the configured one")]
    Weight,
}

/// Reads a body.
pub(super) fn read(body: &[u8]) -> Result<Change, BadChange> {
    // To serde a list of the values is as good.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(BadChange::NoObject);
    }
    let Body { admin, weight } = serde_json::from_slice(body)?;
    let admin = admin.map(|name| AdminState::find(&name).ok_or(BadChange::Admin)).transpose()?;
    let given = |number: Number| {
        let weight = number.as_u64().and_then(|weight| u16::try_from(weight).ok());
        weight.filter(|weight| *weight <= WEIGHT_MAX).ok_or(BadChange::Weight)
    };
    let weight = weight.map(|weight| weight.map(given).transpose()).transpose()?;
    match (admin, weight) {
        (None, None) => Err(BadChange::Nothing),
        _ => Ok(Change { admin, weight }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let ok = |admin, weight| Ok(Change { admin, weight });
        for (body, expected) in [
            (r#"{"admin":"ready"}"#, ok(Some(AdminState::Ready), None)),
            (r#"{"admin":"drain"}"#, ok(Some(AdminState::Drain), None)),
            (
                r#" {"weight":0, "admin":"maintenance"} "#,
                ok(Some(AdminState::Maintenance), Some(Some(0))),
            ),
            (r#"{"weight":256}"#, ok(None, Some(Some(256)))),
            (r#"{"weight":null}"#, ok(None, Some(None))),
            (r#"{"admin":null,"weight":7}"#, ok(None, Some(Some(7)))),
            ("{}", Err("changes nothing")),
            (r#"{"admin":null}"#, Err("changes nothing")),
            (r#"{"admin":"Drain"}"#, Err("one of ready, drain, maintenance")),
            (r#"{"admin":1}"#, Err("expected a string")),
            (r#"{"weight":257}"#, Err("from 0 to 256")),
            (r#"{"weight":18446744073709551615}"#, Err("from 0 to 256")),
            (r#"{"weight":-1}"#, Err("from 0 to 256")),
            (r#"{"weight":1.5}"#, Err("from 0 to 256")),
            (r#"{"weight":"1"}"#, Err("not understood: invalid type: string")),
            (r#"{"weigth":1}"#, Err("unknown field `weigth`, expected `admin` or `weight`")),
            (r#"{"weight":1,"weight":2}"#, Err("duplicate field `weight`")),
            (r#"{"weight":1} x"#, Err("trailing characters")),
            ("", Err("a JSON object")),
            ("{", Err("not understood: EOF while parsing an object at line 1 column 1")),
            ("admin=drain", Err("a JSON object")),
            (r#"["drain"]"#, Err("a JSON object")),
        ] {
            match (read(body.as_bytes()), expected) {
                (Ok(change), Ok(expected)) => assert_eq!(change, expected, "{body}"),
                (Err(problem), Err(expected)) => {
                    let problem = problem.to_string();
                    assert!(problem.contains(expected), "{body}: {problem}");
                }
                (got, _) => panic!("{body}: {got:?}"),
            }
        }
    }
}
