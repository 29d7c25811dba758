//! The few lines of the Prometheus text format (version 0.0.4) that the exporter cannot write.

use std::fmt::Write;

use crate::state::histogram::{BOUNDS, Totals};

/// Writes a counter without labels.
pub(super) fn counter(out: &mut String, name: &str, help: &str, value: f64) {
    header(out, name, help, "counter");
    push(out, format_args!("{name} {value}\n"));
}

/// Writes one histogram for each value of a label; nothing at all if there is none.
pub(super) fn histogram<'a>(
    out: &mut String,
    name: &str,
    help: &str,
    label: &str,
    series: impl Iterator<Item = (&'a str, Totals)>,
) {
    let mut series = series.peekable();
    if series.peek().is_none() {
        return;
    }
    header(out, name, help, "histogram");
    for (value, totals) in series {
        let value = escape(value);
        for (bound, count) in BOUNDS.iter().zip(totals.buckets) {
            push(
                out,
                format_args!("{name}_bucket{{{label}=\"{value}\",le=\"{bound}\"}} {count}\n"),
            );
        }
        let Totals { count, sum, .. } = totals;
        push(
            out,
            format_args!(
                "{name}_bucket{{{label}=\"{value}\",le=\"+Inf\"}} {count}\n\
                 {name}_sum{{{label}=\"{value}\"}} {sum}\n\
                 {name}_count{{{label}=\"{value}\"}} {count}\n"
            ),
        );
    }
    out.push('\n');
}

fn header(out: &mut String, name: &str, help: &str, kind: &str) {
    push(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}

/// A label value as the format wants it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_the_format_names() {
        for (input, expected) in
            [("plain", "plain"), ("a\"b", r#"a\"b"#), (r"a\b", r"a\\b"), ("a\nb", r"a\nb")]
        {
            assert_eq!(escape(input), expected);
        }
    }

    #[test]
    fn no_series_no_header() {
        let mut out = String::new();
        histogram(&mut out, "name", "help", "label", std::iter::empty());
        assert_eq!(out, "");
    }
}
