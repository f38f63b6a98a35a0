import { boot } from './boot.mjs';

boot();
