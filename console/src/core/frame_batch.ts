// Many events in one frame become one change of the screen.

export type Schedule = (run: () => void) => void;

/** Collects values by key until the next frame. In a page that is not visible no frame comes: then only the last value
 * of each key is kept, so it does not grow without limit. */
export class FrameBatch<T> {
  private values = new Map<string, T>();
  private isScheduled = false;
  private isPaused = false;

  constructor(
    private readonly apply: (values: ReadonlyMap<string, T>) => void,
    private readonly combine: (old: T, added: T) => T,
    private readonly schedule: Schedule,
  ) {}

  get size(): number {
    return this.values.size;
  }

  add(key: string, value: T): void {
    const old = this.values.get(key);
    this.values.set(key, old === undefined ? value : this.combine(old, value));
    this.request();
  }

  clear(): void {
    this.values = new Map();
  }

  pause(isPaused: boolean): void {
    this.isPaused = isPaused;
    if (!isPaused && this.values.size) this.request();
  }

  private request(): void {
    if (this.isScheduled || this.isPaused) return;
    this.isScheduled = true;
    this.schedule(() => {
      this.isScheduled = false;
      if (this.isPaused || !this.values.size) return;
      const values = this.values;
      this.values = new Map();
      this.apply(values);
    });
  }
}
