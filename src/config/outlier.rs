//! Passive detection: which backends real connections get ejected.

use super::pool::ANY;
use super::report::Report;
use super::units::Short;
use super::value::{Table, Value};
use super::warning::Suspicion;
use super::{Outlier, defaults};
use crate::health::outlier::{Rate, Terms, Thresholds};
use crate::limits::{CONSECUTIVE_FAILURES_MAX, OUTLIER_WINDOW_MAX, TRIAL_CONNECTIONS_MAX};

pub(super) const OUTLIER: &[&str] = &[
    "consecutive_failures",
    "failure_percent",
    "window",
    "minimum_volume",
    "early_close",
    "base_ejection",
    "max_ejection",
    "max_ejected_percent",
    "trial_connections",
];

/// `Some(None)` is `off`.
pub(super) fn outlier(value: Value<'_>, report: &mut Report) -> Option<Option<Outlier>> {
    value.off_or(report, |value, report| {
        let table = value.table(OUTLIER, "`off` or a map of keys", report)?;
        let defaults = defaults::OUTLIER;
        let thresholds = thresholds(&table, &defaults.thresholds, report);
        let terms = Terms {
            base_ejection: table
                .read("base_ejection", defaults.terms.base_ejection, |v| v.duration(ANY, report)),
            max_ejection: table
                .read("max_ejection", defaults.terms.max_ejection, |v| v.duration(ANY, report)),
            trial_connections: table.read(
                "trial_connections",
                defaults.terms.trial_connections,
                |v| {
                    let max = u64::from(TRIAL_CONNECTIONS_MAX);
                    u8::try_from(v.integer(1..=max, "a whole number", "1", report)?).ok()
                },
            ),
        };
        let early_close = table.read("early_close", defaults.early_close, |v| v.boolean(report));
        let max_ejected_percent =
            table.read("max_ejected_percent", defaults.max_ejected_percent, |v| {
                u8::try_from(v.integer(1..=100, "a whole number", "50", report)?).ok()
            });
        let Terms { base_ejection, max_ejection, .. } = terms;
        if max_ejection < base_ejection {
            let (base, max) = (Short(base_ejection), Short(max_ejection));
            value.warn(Suspicion::ShortMaxEjection { base, max }, report);
        }
        if thresholds.consecutive.is_none() && thresholds.rate.is_none() {
            value.warn(Suspicion::NothingEjects, report);
        }
        Some(Outlier { thresholds, early_close, terms, max_ejected_percent })
    })
}

fn thresholds(table: &Table<'_>, defaults: &Thresholds, report: &mut Report) -> Thresholds {
    let expected = "`off` or a whole number";
    let consecutive = table.read("consecutive_failures", defaults.consecutive, |v| {
        v.off_or(report, |value, report| {
            let max = u64::from(CONSECUTIVE_FAILURES_MAX);
            u16::try_from(value.integer(1..=max, expected, "off or 3", report)?).ok()
        })
    });
    let percent = table.read("failure_percent", defaults.rate.map(|rate| rate.percent), |v| {
        v.off_or(report, |value, report| {
            let expected = "`off` or a whole number of percent";
            u8::try_from(value.integer(1..=100, expected, "off or 50", report)?).ok()
        })
    });
    let window = table.read("window", defaults::FAILURE_WINDOW, |v| {
        let max = u64::from(OUTLIER_WINDOW_MAX);
        u16::try_from(v.integer(2..=max, "a whole number", "100", report)?).ok()
    });
    let most = window / 2;
    let volume = table.read("minimum_volume", defaults::FAILURE_VOLUME.min(most), |v| {
        u16::try_from(v.integer(1..=u64::from(most), "a whole number", "20", report)?).ok()
    });
    Thresholds { consecutive, rate: percent.map(|percent| Rate { percent, window, volume }) }
}
