//! Measures one mapping and its end, through the trait object that every device uses and by static dispatch.

#![expect(unsafe_code, reason = "a mapping is made of a pointer, which its caller vouches for")]

use std::{hint::black_box, ptr::NonNull, time::Instant};

use transom_guest::dma::{Direct, Direction, DmaOps};

use crate::{LEN, median, memory::Heap};

const TIMES: u32 = 100_000;

/// Prints nanoseconds for each, medians of `rounds` that alternate.
pub(crate) fn report(rounds: usize) {
    let direct = Direct::new(&*Box::leak(Box::new(Heap::new())));
    let object: &dyn DmaOps = &direct;
    let (mut generic_ns, mut object_ns) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        generic_ns.push(time(&direct));
        object_ns.push(time(black_box(object)));
    }
    let (generic_ns, object_ns) = (median(&mut generic_ns), median(&mut object_ns));
    println!(r#"{{"operation":"map and unmap","generic_ns":{generic_ns:.1},"object_ns":{object_ns:.1}}}"#);
}

fn time(ops: &(impl DmaOps + ?Sized)) -> f64 {
    let mut bytes = vec![0u8; LEN];
    let start = NonNull::from(bytes.as_mut_slice()).cast();
    let begin = Instant::now();
    for _ in 0..TIMES {
        // SAFETY: `bytes` is writable, outlives the mapping, and is not used until it ends in the next line.
        let mapped = unsafe { ops.map(start, LEN, Direction::FromDevice) }.expect("the heap is mapped");
        // SAFETY: the mapping is of these operations, and `bytes` is still there.
        unsafe { ops.unmap(black_box(mapped), LEN) }
    }
    begin.elapsed().as_nanos() as f64 / f64::from(TIMES)
}
