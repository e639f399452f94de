//! `transom bench memory`.

use std::fs;

use clap::Args;

use super::{Common, command_line};
use crate::{
    memory::{self, MemoryReport},
    report::Facts,
};

#[derive(Debug, Args)]
pub(super) struct Memory {
    #[command(flatten)]
    common: Common,
    /// Number of files to look up.
    #[arg(long, default_value_t = 1_000_000)]
    inodes: u32,
}

impl Memory {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let common = &self.common;
        let candidates = common.candidates()?;
        memory::raise_descriptor_limit();
        let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(&common.shared_in)?;
        memory::populate(shared.path(), self.inodes)?;
        let mut samples = Vec::new();
        for repetition in 0..common.rounds() {
            for candidate in &candidates {
                samples.push(memory::measure(candidate, shared.path(), self.inodes, repetition)?);
            }
        }
        let report = MemoryReport { command: command_line(), facts: Facts::collect(None, &common.shared_in), samples };
        let name = common.name.as_deref().unwrap_or("memory");
        fs::create_dir_all(&common.out)?;
        fs::write(common.out.join(format!("{name}.json")), serde_json::to_vec_pretty(&report)?)?;
        let text = memory::markdown(&report);
        fs::write(common.out.join(format!("{name}.md")), &text)?;
        print!("{text}");
        Ok(())
    }
}
