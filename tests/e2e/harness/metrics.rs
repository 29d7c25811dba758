//! A scrape: read strictly, and held to what must be true of every one.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// All series of one scrape.
#[derive(Clone, Debug)]
pub struct Metrics {
    series: BTreeMap<(String, Labels), f64>,
}

impl Metrics {
    /// Reads the text format; whatever is odd in it panics, as does a listener whose connections
    /// do not add up.
    pub fn parse(text: &str) -> Self {
        let mut series = BTreeMap::new();
        let mut typed = BTreeSet::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (kind, name) = (words.next().unwrap(), words.next().unwrap());
                assert!(matches!(kind, "HELP" | "TYPE"), "{line}");
                if kind == "TYPE" {
                    assert!(typed.insert(name.to_owned()), "a second type: {line}");
                }
                continue;
            }
            let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
            let value = value.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
            let before = series.insert(parse_series(key), value);
            assert!(before.is_none(), "a second time: {line}");
        }
        let metrics = Metrics { series };
        metrics.assert_connections_add_up();
        metrics
    }

    /// The value of one series, all its labels given.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let owned = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let value = self.series.get(&(name.to_owned(), owned));
        *value.unwrap_or_else(|| panic!("no series {name}{labels:?}"))
    }

    /// The sum over a family's series that have this label.
    pub fn sum(&self, name: &str, label: (&str, &str)) -> f64 {
        let has = |labels: &Labels| labels.get(label.0).is_some_and(|value| value == label.1);
        let matching = self.series.iter().filter(|((n, labels), _)| n == name && has(labels));
        matching.map(|(_, value)| value).sum()
    }

    /// The sum over a whole family.
    pub fn total(&self, name: &str) -> f64 {
        self.series.iter().filter(|((n, _), _)| n == name).map(|(_, value)| value).sum()
    }

    /// Connections of a listener that ended like this.
    pub fn closed(&self, listener: &str, termination: &str) -> f64 {
        let labels = [("listener", listener), ("termination", termination)];
        self.value("pointsman_connections_closed_total", &labels)
    }

    /// Connections of a listener that are open.
    pub fn active(&self, listener: &str) -> f64 {
        self.value("pointsman_connections_active", &[("listener", listener)])
    }

    /// Names and labels of every series, without values.
    pub fn names(&self) -> BTreeSet<String> {
        self.series.keys().map(|(name, labels)| format!("{name}{labels:?}")).collect()
    }

    /// Every gauge of what is open: connections by listener, backend and worker.
    pub fn open_gauges(&self) -> BTreeMap<String, f64> {
        let open = self.series.iter().filter(|((name, _), _)| name.ends_with("_active"));
        open.map(|((name, labels), value)| (format!("{name}{labels:?}"), *value)).collect()
    }

    fn assert_connections_add_up(&self) {
        let total = "pointsman_connections_total";
        for ((_, labels), total) in self.series.iter().filter(|((name, _), _)| name == total) {
            let listener = &labels["listener"];
            let closed = self.sum("pointsman_connections_closed_total", ("listener", listener));
            let active = self.active(listener);
            assert_eq!(*total, closed + active, "{listener}: {closed} closed, {active} active");
        }
    }
}

/// `name` or `name{label="value",…}`.
fn parse_series(text: &str) -> (String, Labels) {
    let Some((name, rest)) = text.split_once('{') else {
        return (text.to_owned(), Labels::new());
    };
    let mut rest = rest.strip_suffix('}').unwrap_or_else(|| panic!("no closing brace: {text}"));
    let mut labels = Labels::new();
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        let end = value.find('"').unwrap_or_else(|| panic!("no closing quote: {text}"));
        assert!(!value[..end].contains('\\'), "escapes are not expected here: {text}");
        let twice = labels.insert(label.to_owned(), value[..end].to_owned());
        assert!(twice.is_none(), "a label twice: {text}");
        rest = value[end + 1..].trim_start_matches(',');
    }
    (name.to_owned(), labels)
}
