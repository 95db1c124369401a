package sparkdlbench.transport.push;

import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;

/** OpenSSL's libcrypto of this host, by its own names (EVP_EncryptInit(3)). Addresses and sizes of pointers are 64 bits wide. */
final class LibCrypto {
  /** As the releases 3 and 1.1 are installed everywhere; their calls here are the same. */
  private static final String[] NAMES = {"libcrypto.so.3", "libcrypto.so.1.1"};

  static {
    NativeLibrary found = null;
    UnsatisfiedLinkError missing = null;
    for (String name : NAMES)
      if (found == null)
        try {
          found = NativeLibrary.getInstance(name);
        } catch (UnsatisfiedLinkError error) {
          missing = error;
        }
    if (found == null) throw missing;
    Native.register(LibCrypto.class, found);
  }

  private LibCrypto() {}

  static native long EVP_CIPHER_CTX_new();

  static native void EVP_CIPHER_CTX_free(long context);

  static native long EVP_aes_128_ctr();

  static native long EVP_aes_192_ctr();

  static native long EVP_aes_256_ctr();

  static native int EVP_EncryptInit_ex(long context, long cipher, long engine, byte[] key, byte[] iv);

  static native int EVP_EncryptUpdate(long context, long out, long outLength, long in, int inLength);

  // The same with key and vector by their addresses: arrays are copied at each call.
  static native int EVP_EncryptInit_ex(long context, long cipher, long engine, long key, long iv);

  static native long EVP_aes_128_gcm();

  static native long EVP_aes_256_gcm();

  static native int EVP_EncryptFinal_ex(long context, long out, long outLength);

  static native int EVP_DecryptInit_ex(long context, long cipher, long engine, byte[] key, byte[] iv);

  static native int EVP_DecryptInit_ex(long context, long cipher, long engine, long key, long iv);

  static native int EVP_DecryptUpdate(long context, long out, long outLength, long in, int inLength);

  static native int EVP_DecryptFinal_ex(long context, long out, long outLength);

  static native int EVP_CIPHER_CTX_ctrl(long context, int command, int argument, long pointer);

  static native String OpenSSL_version(int of);
}
