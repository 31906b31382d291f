# Homebrew, on Linux.
class Nanovllm < Formula
  desc "Embeddable inference engine for language models"
  homepage "@HOMEPAGE@"
  url "@SOURCE_URL@"
  sha256 "@SOURCE_SHA256@"
  license "MIT"

  depends_on "cmake" => :build
  depends_on "pkgconf" => :build
  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cmake", "-S", ".", "-B", "build", "-DNANOVLLM_BUILD_TESTS=OFF", "-DNANOVLLM_BUILD_GAME=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/nanovllm --version")
    (testpath/"test.c").write <<~C
      #include <nanovllm.h>
      int main(void) { return nvllm_abi_version() == NVLLM_ABI_VERSION ? 0 : 1; }
    C
    system ENV.cc, "test.c", "-I#{include}", "-L#{lib}", "-lnanovllm", "-Wl,-rpath,#{lib}", "-o", "test"
    system "./test"
  end
end
