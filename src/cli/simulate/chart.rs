//! The load of each backend over time, drawn with blocks.

use std::fmt::Write as _;

use super::table::{milliseconds, percent};
use crate::cli::table::{Align, Table};
use crate::simulate::report::Report;

/// Backends drawn; `--format json` has them all.
const ROWS: usize = 16;

/// An eighth each.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Nothing under way.
const NOTHING: char = '·';

/// One chart a policy, each to its own scale: beside a queue without end nothing else would show.
pub fn render(reports: &[Report]) -> String {
    reports.iter().map(one).collect()
}

fn one(report: &Report) -> String {
    let scale = report.load.backends.iter().flatten().copied().fold(0.0, f64::max);
    let column = milliseconds(report.load.width);
    let mut text = format!(
        "\n{}: requests under way; a column is {column} ms, █ is {scale:.1}\n",
        report.policy
    );
    let mut table = Table::new(&[
        ("BACKEND", Align::Right),
        ("SHARE", Align::Right),
        ("MOST", Align::Right),
        ("", Align::Left),
    ]);
    let rows = report.backends.iter().zip(&report.load.backends).enumerate();
    for (index, (backend, load)) in rows.take(ROWS) {
        table.row([
            (index + 1).to_string(),
            percent(backend.share),
            backend.most_active.to_string(),
            load.iter().map(|&active| block(active, scale)).collect(),
        ]);
    }
    text += &table.render();
    if let Some(more @ 1..) = report.backends.len().checked_sub(ROWS) {
        let shares = || report.backends[ROWS..].iter().map(|backend| backend.share);
        let least = percent(shares().fold(f64::INFINITY, f64::min));
        let most = percent(shares().fold(0.0, f64::max));
        let _ = writeln!(text, "... {more} more with {least} to {most} each");
    }
    text
}

/// Rounded up: what is there is seen.
fn block(active: f64, scale: f64) -> char {
    let eighths = (active / scale * BLOCKS.len() as f64 - 1e-9).ceil();
    if active <= 0.0 || !eighths.is_finite() {
        return NOTHING;
    }
    BLOCKS[(eighths as usize).clamp(1, BLOCKS.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        for (active, expected) in
            [(0.0, '·'), (0.001, '▁'), (1.0, '▁'), (1.01, '▂'), (4.0, '▄'), (8.0, '█'), (9.0, '█')]
        {
            assert_eq!(block(active, 8.0), expected, "{active}");
        }
        assert_eq!(block(0.0, 0.0), '·');
    }
}
