//! A platform whose devices do not see the processor's caches: memory for data exists twice, and only a sync carries
//! bytes from one copy to the other.

#![expect(unsafe_code, reason = "implements mappings of memory")]

use std::{
    collections::HashMap,
    ptr::NonNull,
    sync::{Arc, Mutex},
    thread,
};

use transom_guest::{
    channel::{Channel, Message, OwnedMessage, Sink, Source},
    device::VirtioFs,
    dma::{Direct, Direction, DmaChoice, DmaError, DmaMemory, DmaOps, Mapped},
};

use crate::{
    calls::echo,
    fake::{ALL, Fake, FakeTransport},
    memory::{Heap, allocate, view},
    platform::{Device, SLEEPING, Threads},
};

const LEN: usize = 8192;

/// Rings and message heads are coherent; data is not.
struct Incoherent {
    coherent: Direct<&'static Heap>,
    /// What the device sees of memory for data, by the address that it has there.
    device_sides: Mutex<HashMap<u64, DmaMemory>>,
}

impl Incoherent {
    fn new() -> Arc<Self> {
        let coherent = Direct::new(&*Box::leak(Box::new(Heap::new())));
        Arc::new(Self { coherent, device_sides: Mutex::default() })
    }

    fn with_device_side(&self, memory: &DmaMemory, work: impl FnOnce(&DmaMemory)) {
        work(&self.device_sides.lock().unwrap()[&memory.address()]);
    }
}

impl DmaOps for Incoherent {
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        self.coherent.allocate(len_bytes)
    }

    fn allocate_data(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        let (ours, theirs) = (allocate(len_bytes), allocate(len_bytes));
        let address = theirs.address();
        self.device_sides.lock().unwrap().insert(address, theirs);
        Ok(view(ours.start(), len_bytes, address))
    }

    fn free(&self, memory: DmaMemory) {
        // The processor's side of memory for data leaks.
        if self.device_sides.lock().unwrap().remove(&memory.address()).is_none() {
            self.coherent.free(memory);
        }
    }

    fn sync_for_device(&self, memory: &DmaMemory, offset: usize, len_bytes: usize, _: Direction) {
        self.with_device_side(memory, |theirs| theirs.copy_from(offset, memory, offset, len_bytes));
    }

    fn sync_for_cpu(&self, memory: &DmaMemory, offset: usize, len_bytes: usize) {
        self.with_device_side(memory, |theirs| memory.copy_from(offset, theirs, offset, len_bytes));
    }

    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.coherent.map(start, len_bytes, direction) }
    }

    unsafe fn unmap(&self, mapped: Mapped, written_bytes: usize) {
        // SAFETY: as above.
        unsafe { self.coherent.unmap(mapped, written_bytes) }
    }

    fn mapping_len_max(&self) -> usize {
        self.coherent.mapping_len_max()
    }
}

/// Sends the first page of one buffer, and receives the reply in the second one of another: by a call, and by a message
/// that is started and finished.
#[test]
fn memory_for_data_is_handed_over_before_each_use_by_the_device_and_taken_back_after_it() {
    let ops: Arc<dyn DmaOps> = Incoherent::new();
    let dma = DmaChoice::always(ops);
    let fake = Arc::new(Fake::new(ALL, 1, 16));
    let device: Device = VirtioFs::new(FakeTransport(Arc::clone(&fake)), Arc::new(Threads), &dma, SLEEPING).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| fake.serve(1, echo));
        let (to, from) = (Arc::new(device.buffer(LEN).unwrap()), Arc::new(device.buffer(LEN).unwrap()));
        for round in 1..20u8 {
            to.fill(0, 4096, round);
            let head = [round; 40];
            if round % 2 == 0 {
                let message = Message {
                    head: &head,
                    data: Source::Buffer(&to, 0, 4096),
                    reply_head: &mut [0; 8],
                    reply_data: Sink::Buffer(&from, 4096, 4096),
                };
                assert_eq!(device.call(0, message), Ok(8 + 4096));
            } else {
                let message = OwnedMessage {
                    head: head.to_vec(),
                    data: Some((Arc::clone(&to), 0..4096)),
                    reply_head_len: 8,
                    reply_data: Some((Arc::clone(&from), 4096..8192)),
                };
                let ticket = device.start(0, message).unwrap();
                assert_eq!(device.finish(ticket).unwrap().written, 8 + 4096);
            }
            let mut back = [0; LEN];
            from.read(0, &mut back);
            assert!(back[4096..].iter().all(|&byte| byte == round), "round {round}");
            // Nothing else was touched.
            assert!(back[..4096].iter().all(|&byte| byte == 0), "round {round}");
        }
        drop(device);
    });
}
