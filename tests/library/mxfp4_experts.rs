//! The matrices of experts in MXFP4 have the numbers that transformers decodes from them.
//!
//! `tests/golden/make_quantized.py` wrote them down.

use crate::driver;
use crate::scratch_folder;

use driver::golden;
use formats::source::{Source, Tensors};
use model::quantization::mxfp4::{self, Experts};
use os::Loading;
use safetensors::{Dtype, SafeTensors};
use scratch_folder::Folder;
use std::fs;

#[test]
fn experts_of_mxfp4_have_the_numbers_that_transformers_decodes() {
    let bytes = fs::read(golden("mxfp4_experts.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let folder = Folder::copy("quantized/ct-int4-group32", "experts");
    folder.edit_tensors(|all| {
        for (name, tensor) in file.iter().filter(|(name, _)| *name != "numbers") {
            all.insert(name.to_owned(), (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()));
        }
    });
    let tensors = open_tensors(&folder);
    let numbers = file.tensor("numbers").unwrap();
    let [count, rows, cols] = *numbers.shape() else { panic!("{:?}", numbers.shape()) };
    let experts = Experts { count, rows, cols };
    for (expert, wanted) in numbers.data().chunks(4 * rows * cols).enumerate() {
        let wanted: Vec<u32> = wanted.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        let found = mxfp4::expert(&tensors, "experts", experts, expert).unwrap();
        let found: Vec<u32> = found.to_f32().iter().map(|number| number.to_bits()).collect();
        assert_eq!(found, wanted, "expert {expert}");
    }
    let refused = |name: &str, experts| mxfp4::expert(&tensors, name, experts, 0).unwrap_err().to_string();
    assert_eq!(
        refused("experts", Experts { rows: 5, ..experts }),
        "tensor experts_blocks has shape [2, 6, 2, 16], but config.json implies [2, 5, 2, 16]"
    );
    assert!(refused("nobody", experts).contains("nobody_blocks of shape [2, 6, 2, 16] is missing"));
    folder.edit_tensors(|all| all.get_mut("experts_scales").unwrap().0 = Dtype::I8);
    let refused = mxfp4::expert(&open_tensors(&folder), "experts", experts, 0).unwrap_err().to_string();
    assert!(refused.contains("experts_scales of quantized weights has type I8, but must have type U8"), "{refused}");
}

fn open_tensors(folder: &Folder) -> Tensors {
    Tensors::open(&Source::open(&folder.path).unwrap(), Loading::Map, u64::MAX).unwrap()
}
