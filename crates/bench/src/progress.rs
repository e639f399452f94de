//! A progress bar with the remaining time; hidden if standard error is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar of `steps`.
pub fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {elapsed} gone, {eta} left  {msg}")
        .expect("the template names only fields that indicatif has");
    let bar = ProgressBar::new(steps).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
