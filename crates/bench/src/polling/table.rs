//! The table of a comparison of settings.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

use super::{PollingReport, PollingSample, Scene};

/// A share of an idle machine may cost at most this part of a core.
const IDLE_CORE_MAX: f64 = 0.001;

/// Returns the name of a setting.
pub(super) fn setting(poll_us: Option<u32>) -> String {
    poll_us.map_or_else(|| "default".to_owned(), |us| format!("--poll-us {us}"))
}

/// Returns the tables of a report: the median of the rounds, and in brackets the smallest and the largest.
pub fn markdown(report: &PollingReport) -> String {
    let mut scenes: Vec<Scene> = Vec::new();
    for sample in &report.samples {
        if !scenes.contains(&sample.scene) {
            scenes.push(sample.scene);
        }
    }
    let mut text = format!("# Settings of --poll-us\n\n`{}`\n", report.command.join(" "));
    for scene in scenes {
        let of_scene: Vec<_> = report.samples.iter().filter(|sample| sample.scene == scene).collect();
        let (shares, cores) = of_scene.first().map_or((0, 0), |sample| (sample.shares, sample.cores));
        let _ = write!(text, "\n## {}\n\n{shares} shares on {cores} cores.\n\n", scene.title());
        text += &table(scene, &of_scene);
        if scene == Scene::Idle {
            text += &idle_verdict(&of_scene);
        }
    }
    text
}

/// A column: its title, and its value in a sample.
type Column = (&'static str, fn(&PollingSample) -> f64);

fn columns(scene: Scene) -> Vec<Column> {
    let mut columns: Vec<Column> = match scene {
        Scene::Idle => vec![
            ("% of a core for each share", |sample| core(sample) * 100.0),
            ("wakes in 10 s for each share", |sample| {
                sample.daemon_wakes as f64 * 1e10 / sample.elapsed_ns as f64 / f64::from(sample.shares)
            }),
        ],
        _ => vec![
            ("requests/s", |sample| sample.requests as f64 * 1e9 / sample.elapsed_ns as f64),
            ("p50 µs", |sample| sample.latency_p50_ns as f64 / 1e3),
            ("p99 µs", |sample| sample.latency_p99_ns as f64 / 1e3),
            ("daemon's µs a request", |sample| sample.daemon_cpu_ns as f64 / 1e3 / sample.requests as f64),
            ("wakes a request", |sample| sample.daemon_wakes as f64 / sample.requests as f64),
        ],
    };
    if scene == Scene::HostComputes {
        columns.push(("host's rounds/ms", |sample| sample.computed as f64 * 1e6 / sample.elapsed_ns as f64));
    }
    columns
}

/// Returns the part of a core that each share has cost.
fn core(sample: &PollingSample) -> f64 {
    sample.daemon_cpu_ns as f64 / sample.elapsed_ns as f64 / f64::from(sample.shares)
}

fn table(scene: Scene, samples: &[&PollingSample]) -> String {
    let columns = columns(scene);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(std::iter::once("setting").chain(columns.iter().map(|(title, _)| *title)));
    for poll_us in settings(samples) {
        let of_setting: Vec<_> = samples.iter().filter(|sample| sample.poll_us == poll_us).collect();
        let cells = columns.iter().map(|(_, value)| cell(of_setting.iter().map(|sample| value(sample)).collect()));
        table.add_row(std::iter::once(setting(poll_us)).chain(cells));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n")
}

fn settings(samples: &[&PollingSample]) -> Vec<Option<u32>> {
    let mut settings = Vec::new();
    for sample in samples {
        if !settings.contains(&sample.poll_us) {
            settings.push(sample.poll_us);
        }
    }
    settings
}

/// Returns the median of `values`, and the extremes if there are several.
fn cell(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let number = |value: f64| match value.abs() {
        1000.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    };
    match values[..] {
        [] => "-".to_owned(),
        [only] => number(only),
        [least, .., most] => format!("{} [{}, {}]", number(values[values.len() / 2]), number(least), number(most)),
    }
}

fn idle_verdict(samples: &[&PollingSample]) -> String {
    let most = samples.iter().map(|sample| core(sample)).fold(0.0, f64::max);
    let verdict = if most <= IDLE_CORE_MAX { "within" } else { "ABOVE" };
    format!(
        "\nThe most that an idle share has cost is {:.4} % of a core, {verdict} the limit of {:.1} %.\n",
        most * 100.0,
        IDLE_CORE_MAX * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Facts;

    fn sample(scene: Scene, poll_us: Option<u32>, daemon_cpu_ns: u64) -> PollingSample {
        PollingSample {
            scene,
            poll_us,
            repetition: 0,
            shares: 2,
            cores: 2,
            elapsed_ns: 1_000_000_000,
            requests: 1000,
            latency_p50_ns: 50_000,
            latency_p99_ns: 90_000,
            daemon_cpu_ns,
            daemon_wakes: 500,
            computed: 7000,
        }
    }

    fn text(samples: Vec<PollingSample>) -> String {
        let facts = Facts::collect(None, &std::env::temp_dir());
        markdown(&PollingReport { command: vec!["transom".to_owned()], facts, samples })
    }

    #[test]
    fn a_row_has_the_median_and_the_extremes_of_its_rounds() {
        let busy = |ns| sample(Scene::OneBusy, Some(20), ns);
        let text = text(vec![busy(9_000_000), busy(3_000_000), busy(5_000_000), sample(Scene::OneBusy, None, 0)]);
        assert!(text.contains("5.000 [3.000, 9.000]") && text.contains("--poll-us 20") && text.contains("default"));
        assert!(text.contains("0.500"), "wakes a request: {text}");
    }

    #[test]
    fn an_idle_share_that_costs_too_much_is_told() {
        // Two shares: 2 ms in a second are 0.1 % for each.
        let within = text(vec![sample(Scene::Idle, None, 2_000_000)]);
        assert!(within.contains("0.1000 % of a core, within"), "{within}");
        let above = text(vec![sample(Scene::Idle, None, 2_000_000), sample(Scene::Idle, Some(0), 2_100_000)]);
        assert!(above.contains("0.1050 % of a core, ABOVE"), "{above}");
    }
}
