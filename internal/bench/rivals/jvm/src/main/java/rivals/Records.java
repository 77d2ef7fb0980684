package rivals;

import java.nio.charset.StandardCharsets;
import java.util.Random;

/** Records that are appended in turn: keys of 16 bytes, and values that do not compress. */
final class Records {
    static final int COUNT = 1000;

    final byte[][] keys = new byte[COUNT][];
    final byte[][] values = new byte[COUNT][];

    Records(int valueBytes) {
        Random random = new Random(1);
        for (int i = 0; i < COUNT; i++) {
            keys[i] = String.format("key-%012d", random.nextInt(1000)).getBytes(StandardCharsets.US_ASCII);
            values[i] = new byte[valueBytes];
            random.nextBytes(values[i]);
        }
    }
}
