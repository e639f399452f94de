//! Writes the inputs that fuzzing begins with to the fuzzers' corpora: `cargo run -p transom-fuzzing --example seeds`.

use std::{fs, path::Path};

use transom_fuzzing::seeds;

fn main() -> anyhow::Result<()> {
    let targets = [
        ("decode", seeds::decode()),
        ("requests", seeds::requests()),
        ("guest_device", seeds::guest_device()),
        ("guest_replies", seeds::guest_replies()),
        ("migration", seeds::migration()),
        ("announcement", seeds::announcement()),
    ];
    for (target, seeds) in targets {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        fs::create_dir_all(&corpus)?;
        for seed in &seeds {
            fs::write(corpus.join(&seed.name), &seed.bytes)?;
        }
        println!("{}: {} seeds", corpus.display(), seeds.len());
    }
    Ok(())
}
