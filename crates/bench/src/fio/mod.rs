//! Debian's fio in Linux guests under QEMU: a share with and without DAX, other daemons, and QEMU's own virtio-9p.
//!
//! The guest's root is the host's, so that it has the host's fio. Each side boots once in a round and runs the whole
//! [`matrix`]; what fio prints comes back on standard output, between lines of ours.

mod matrix;
mod output;
mod side;

use std::{env, fs, io::Write, path::Path, time::Duration};

use anyhow::{Context, ensure};
use transom_vm::{Accelerator, GuestSpec, Kernel, Qemu, Root, Share, Stdio, tools::Program};

use crate::{progress, report::Sample};
pub use side::{Side, Way};

/// What to measure.
pub struct Plan {
    /// The first one is compared with each other one.
    pub sides: Vec<Side>,
    /// Rounds over all sides.
    pub rounds: u32,
    /// Bytes of each file; fio's jobs have one each.
    pub file_len: u64,
    /// Seconds of each of fio's runs.
    pub seconds: f64,
    /// What is booted.
    pub kernel: Kernel,
    /// Memory of the guest, MiB.
    pub memory_mib: u32,
    /// Virtual processors of the guest.
    pub cpus: u32,
}

/// Where the guest mounts the share.
const MOUNT_POINT: &str = "/mnt";
/// Begins a line of ours.
const MARK: &str = "@@fio ";
/// What a boot, mounts and the start of each fio take at most, under emulation on a busy machine.
const OVERHEAD: Duration = Duration::from_secs(600);

/// Measures `plan` with QEMU, sharing a fresh directory below `parent`.
pub fn measure(plan: &Plan, qemu: &Program, cache: &Path, parent: &Path) -> anyhow::Result<Vec<Sample>> {
    let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
    make_files(shared.path(), plan.file_len)?;
    let jobs = matrix::all();
    let bar = progress::bar(plan.sides.len() as u64 * u64::from(plan.rounds));
    let scenario = format!("QEMU, {} vCPU, {} MiB files", plan.cpus, plan.file_len >> 20);
    let mut samples = Vec::new();
    for repetition in 0..plan.rounds {
        for side in &plan.sides {
            bar.set_message(side.name.clone());
            let answers = in_guest(plan, side, &jobs, qemu, cache, shared.path())?;
            for job in &jobs {
                let answer = answers.iter().find(|(name, _)| *name == job.name).map_or("", |(_, text)| text);
                let parsed = output::parse(answer);
                samples.push(Sample {
                    scenario: scenario.clone(),
                    workload: job.name.clone(),
                    daemon: side.name.clone(),
                    repetition,
                    refusal: parsed.as_ref().err().map(|error| format!("{error:#}")),
                    measure: parsed.ok(),
                });
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

/// Files with random bytes, which nothing can compress or take for holes.
fn make_files(dir: &Path, len: u64) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut chunk = vec![0; 1 << 20];
    for name in matrix::file_names() {
        let mut file = fs::File::create(dir.join(name))?;
        let mut left = len;
        while left > 0 {
            let part = left.min(chunk.len() as u64) as usize;
            random.fill(&mut chunk[..part]);
            file.write_all(&chunk[..part])?;
            left -= part as u64;
        }
    }
    Ok(())
}

/// Runs all jobs in one guest. Returns what fio printed for each.
fn in_guest(
    plan: &Plan,
    side: &Side,
    jobs: &[matrix::Job],
    qemu: &Program,
    cache: &Path,
    shared: &Path,
) -> anyhow::Result<Vec<(String, String)>> {
    let vmm = side.vmm(Qemu::new(qemu.clone(), Accelerator::Tcg, cache), shared);
    let root = Share { host: "/".into(), guest: "/".into(), is_read_only: true, ..Share::default() };
    let spec = GuestSpec {
        kernel: plan.kernel.clone(),
        agent: env::current_exe()?,
        daemon: side.daemon.program.clone(),
        busybox: None,
        root: Root::Host(root),
        shares: side.shares(shared, MOUNT_POINT),
        command: ["sh", "-c"].into_iter().map(Into::into).chain([script(plan, side, jobs).into()]).collect(),
        env: Vec::new(),
        memory_mib: plan.memory_mib,
        cpus: plan.cpus,
        stdio: Stdio::default(),
        timeout: Some(OVERHEAD + Duration::from_secs_f64(plan.seconds * jobs.len() as f64 * 2.0)),
        console: None,
        is_foreground: false,
    };
    let outcome = transom_vm::run(&spec, &vmm).with_context(|| format!("a guest with {}", side.name))?;
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.exit_code == 0, "fio over {} ended with {}: {stderr}", side.name, outcome.exit_code);
    Ok(split(&String::from_utf8_lossy(&outcome.stdout)))
}

fn script(plan: &Plan, side: &Side, jobs: &[matrix::Job]) -> String {
    let mut script = String::from("set -e\ncommand -v fio >/dev/null || { echo 'there is no fio' >&2; exit 1; }\n");
    script.push_str(&side.mount_script(MOUNT_POINT));
    script.push_str("set +e\n");
    for job in jobs {
        let arguments = job.arguments(MOUNT_POINT, plan.file_len, plan.seconds).join(" ");
        script.push_str(&format!("echo '{MARK}{}'; fio {arguments} 2>&1; echo\n", job.name));
    }
    script.push_str("exit 0\n");
    script
}

/// What stands between our lines, by what they say.
fn split(text: &str) -> Vec<(String, String)> {
    let parts = text.split(MARK).skip(1);
    parts.filter_map(|part| part.split_once('\n')).map(|(name, text)| (name.into(), text.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_by_their_marks() {
        let found = split("noise\n@@fio a b\n{1}\n@@fio c\n{2}\n");
        assert_eq!(found, [("a b".into(), "{1}\n".into()), ("c".into(), "{2}\n".into())]);
    }
}
